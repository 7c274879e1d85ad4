"""What a run is: its recipe, its folder and its result. The one place that knows the files of a run; never torch."""
