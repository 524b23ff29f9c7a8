"""Compare methods over seeds, and read the table in Python; pandas takes it as it is, and is not needed.

    python examples/compare.py
"""  # fmt: skip

import prowd

if __name__ == "__main__":  # worker processes import this file
    comparison = prowd.compare(
        "quick", methods=["fedavg", "prowd-plus"], seeds=[0, 1], clients="int8:2, float32:2", rounds=3, steps=10
    )
    for row in comparison.rows:  # an Estimate has mean, half (of its 95 % interval) and count
        print(f"{row.method:12} {row.average.mean:6.2f} ± {row.average.half:.2f}, {row.bytes_up / 1e6:.1f} MB a round")
        if row.difference is not None:
            decided = "decided" if row.difference.excludes_zero else "not decided by these seeds"
            print(f"{'':12} {row.difference.mean:+6.2f} ± {row.difference.half:.2f} against fedavg: {decided}")
    for run in comparison.runs():  # flat: pandas.DataFrame(comparison.runs()) is a data frame
        print(run["method"], run["seed"], run["int8 trained"], run["float32 trained"])
    print("failed:", dict(comparison.failures) or "none")
