"""Write points near a line: two numbers in each line of a file, every third point for the evaluation."""

import argparse
import random


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("points")
    parser.add_argument("--number", type=int, default=600)
    options = parser.parse_args()
    draw = random.Random(7)
    with open(options.points, "w") as file:
        for _ in range(options.number):
            x = draw.uniform(-1, 1)
            file.write(f"{x} {3 * x + 2 + draw.gauss(0, 0.1)}\n")


if __name__ == "__main__":
    main()
