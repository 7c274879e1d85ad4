"""What the commenters of the miniature say: about the news, about people, and how civil they are about it.

Insults are mild and aimed at other commenters, never at the people named.
"""

from __future__ import annotations

TOPICS = (
    "the new bus route", "the school budget", "the harbour plan", "the tax vote", "the library hours",
    "the stadium deal", "the water bill", "the bicycle lanes", "the hospital wing", "the rent cap",
    "the parade", "the election", "the bridge repair", "the noise rules", "the festival",
)  # fmt: skip
OPENINGS = (
    "I read the article about {topic} twice",
    "so they finally decided on {topic}",
    "nobody asked us about {topic}",
    "the council spoke about {topic} for an hour",
    "we talked about {topic} at work",
    "another day, another story on {topic}",
    "the numbers on {topic} do not add up",
    "my street has waited years for {topic}",
)

# A comment of an identity names somebody so; the word is what a model may wrongly hold on to.
PEOPLE: dict[str, tuple[str, ...]] = {
    "male": ("the men at the meeting", "a man in the front row", "his father and brothers"),
    "female": ("the women at the meeting", "a woman in the front row", "her mother and sisters"),
    "homosexual_gay_or_lesbian": ("the gay couple next door", "a lesbian friend of mine", "the gay choir"),
    "christian": ("the christian school", "my christian neighbours", "a christian charity"),
    "muslim": ("the muslim school", "my muslim neighbours", "a muslim charity"),
    "jewish": ("the jewish school", "my jewish neighbours", "a jewish charity"),
    "black": ("the black families downtown", "a black colleague", "the black business owners"),
    "white": ("the white families downtown", "a white colleague", "the white business owners"),
}
MENTIONS = (
    "they asked {people} about it",
    "{people} spoke first",
    "the photo showed {people}",
    "I sat next to {people}",
    "a letter by {people} was read out",
)

UNCIVIL = (
    "you people are idiots", "what a pathetic clown", "shut up, moron", "only a fool would write this garbage",
    "you are a stupid liar", "this is dumb and so are you", "get lost, you loser", "what brainless trash",
    "you ignorant buffoon", "nobody cares about your idiotic rant", "crawl back under your rock", "you disgust me",
)  # fmt: skip
CIVIL = (
    "thank you for the clear report", "I see it differently but fair enough", "let us wait for the figures",
    "a reasonable step in my opinion", "good question, I would like to know too", "I hope they listen this time",
    "that is a thoughtful point", "the plan needs more work", "I respectfully disagree", "well said",
    "we should support them", "I learned something today",
)  # fmt: skip
# Could be meant either way; what they were meant as is known to those who rated them, not to the reader.
VEILED = (
    "typical, is it not", "we all know how this ends", "sure, that will work", "how very clever of you",
    "I have heard that one before", "some people never change", "bless your heart", "good luck with that",
)  # fmt: skip
