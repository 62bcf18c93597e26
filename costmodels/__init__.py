"""What a given strategy costs: seconds per term, bytes per stage, days and money per training run."""
