"""What runs on the board itself: plain Python 3.7 and newer, standard library only, no other room."""
