"""From files or frames to rows that know their group: the only table that is held in memory."""
