"""What the reviewers of the miniature say: opinions from bad to good in three ways of speaking, and of what."""

from __future__ import annotations

# A tuple for each number of stars; in it one for each way of speaking (plain, chatty, terse).
OPINIONS: tuple[tuple[tuple[str, ...], ...], ...] = (
    (
        ("it broke on the first day", "a complete waste of money", "i returned it at once", "the worst i have bought"),
        ("what a rip off", "honestly total junk", "i am furious about this", "please do not buy this thing"),
        ("dead on arrival", "unusable", "refund requested", "avoid"),
    ),
    (
        (
            "it feels cheap and flimsy",
            "i expected much more",
            "it stopped working after a month",
            "rather disappointing",
        ),
        ("meh i was let down", "kind of a lemon", "not what the pictures promised", "bit of a bummer"),
        ("poor finish", "below expectations", "wore out early", "mediocre at best"),
    ),
    (
        ("it is average for the price", "it does the job and no more", "there are better ones", "it is acceptable"),
        ("so so to be honest", "i guess it is okay", "nothing to write home about", "i could take it or leave it"),
        ("adequate", "as described", "middling", "serviceable"),
    ),
    (
        ("it works well with small flaws", "i am quite pleased with it", "good value overall", "a solid purchase"),
        ("pretty neat actually", "i kinda like it a lot", "my folks enjoy it", "glad i picked it up"),
        ("sturdy", "reliable so far", "well made", "recommended with reservations"),
    ),
    (
        (
            "it is perfect in every way",
            "i love it and use it daily",
            "the best i have ever owned",
            "an excellent product",
        ),
        ("oh wow this is amazing", "i am over the moon", "best thing ever seriously", "totally awesome stuff"),
        ("flawless", "superb", "exceeds specification", "unreservedly recommended"),
    ),
)

THINGS: dict[str, tuple[str, ...]] = {
    "Books": ("novel", "paperback", "cookbook", "biography", "story collection"),
    "Electronics": ("charger", "headset", "cable", "speaker", "keyboard"),
    "Grocery_and_Gourmet_Food": ("coffee", "tea", "olive oil", "chocolate", "granola"),
    "Home_and_Kitchen": ("kettle", "pan", "lamp", "pillow", "knife set"),
    "Toys_and_Games": ("puzzle", "board game", "doll", "train set", "kite"),
}

OPENINGS = (
    "bought this {thing} last month",
    "this {thing} was a gift",
    "i have used the {thing} for a while",
    "the {thing} arrived on time",
    "ordered the {thing} for my family",
    "second {thing} from this maker",
)

# Habits: what a reviewer says again and again, whatever the stars.
HABITS = (
    "thanks for reading", "hope this helps", "as always", "just my two cents", "you know", "in my view",
    "for what it is worth", "long story short", "no complaints about delivery", "the box was dented", "my dog agrees",
    "will update this later", "cheers", "the seller was quick", "as a teacher", "as an engineer",
)  # fmt: skip
