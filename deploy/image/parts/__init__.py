"""The parts of deploy/image/build."""
