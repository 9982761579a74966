//! A case of the catalogue: a world, what happens in it, and where it must end. One text file each.
