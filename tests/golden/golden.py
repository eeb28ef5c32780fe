#!/usr/bin/env python3
"""golden.py: writes chunks.txt, the chunks that kofn must make of known bytes, for ever.

Nothing here is kofn's or ISA-L's code: the field, the matrices, the stripes and the checksums are
written again from their definitions, so the file also proves that kofn follows them.

  golden.py > chunks.txt        golden.py --selftest prints the sums for codec/self_test.c
"""
import hashlib
import struct
import sys

EXP, LOG = [0] * 512, [0] * 256
x = 1
for power in range(255):
    EXP[power], LOG[x] = x, power
    x = (x << 1) ^ (0x11D if x & 0x80 else 0)
for power in range(255, 512):
    EXP[power] = EXP[power - 255]

CRC = []
for byte in range(256):
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    CRC.append(byte)


def mul(a, b):
    return EXP[LOG[a] + LOG[b]] if a and b else 0


def inv(a):
    return EXP[255 - LOG[a]]


def crc32c(crc, data):
    crc ^= 0xFFFFFFFF
    for b in data:
        crc = (crc >> 8) ^ CRC[(crc ^ b) & 255]
    return crc ^ 0xFFFFFFFF


def coefficients(technique, k, m):
    """The m parity rows."""
    if m == 1 or k == 1 or technique == "xor":
        return [[1] * k for _ in range(m)]
    if technique == "xor3p":  # groups of three: 0^1, 1^2, 0^2
        pairs = [p for j in range(0, k, 3) for p in ((j, j + 1), (j + 1, j + 2), (j, j + 2))]
        return [[int(i in pair) for i in range(k)] for pair in pairs]
    if technique == "cauchy":
        return [[inv((k + r) ^ j) for j in range(k)] for r in range(m)]
    rows = []
    for r in range(m):
        generator, row, value = EXP[r], [], 1
        for _ in range(k):
            row.append(value)
            value = mul(value, generator)
        rows.append(row)
    return rows


def parities(technique, k, m, units):
    out = []
    for row in coefficients(technique, k, m):
        unit = bytearray(len(units[0]))
        for c, data in zip(row, units):
            for i, b in enumerate(data):
                unit[i] ^= mul(c, b)
        out.append(bytes(unit))
    return out


def body(size):
    """Bytes of a 32-bit linear congruential generator: the tests make the same ones in C."""
    out, state = bytearray(), 1
    for _ in range(size):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(state >> 24)
    return bytes(out)


def chunks(technique, k, m, unit, size):
    """For each chunk its list of stored units (ARCHITECTURE.md)."""
    data, out = body(size), [[] for _ in range(k + m)]
    for at in range(0, size, k * unit):
        part = data[at:at + k * unit]
        u = unit if len(part) == k * unit else (-(-len(part) // k) + 63) // 64 * 64
        stored = [part[i * u:(i + 1) * u] for i in range(k)]
        padded = [s.ljust(u, b"\0") for s in stored]
        for i, s in enumerate(stored + parities(technique, k, m, padded)):
            out[i].append(s)
    return out


BLOB_ID = bytes(range(16))
PROFILES = [
    ("none", 1, 0, 64, 100), ("none", 3, 0, 64, 500),
    ("xor", 1, 1, 64, 70), ("xor", 2, 1, 64, 333), ("xor", 5, 1, 128, 1000),
    ("reed_sol_van", 1, 2, 64, 70), ("reed_sol_van", 2, 1, 64, 333), ("reed_sol_van", 2, 2, 64, 300),
    ("reed_sol_van", 3, 2, 64, 450), ("reed_sol_van", 4, 2, 64, 1000), ("reed_sol_van", 6, 3, 64, 1000),
    ("reed_sol_van", 8, 4, 64, 1100), ("reed_sol_van", 21, 4, 64, 1400),
    ("cauchy", 1, 2, 64, 70), ("cauchy", 2, 1, 64, 333), ("cauchy", 4, 2, 64, 1000),
    ("cauchy", 8, 4, 64, 1100), ("cauchy", 10, 6, 64, 700), ("cauchy", 16, 16, 64, 1024),
    ("xor3p", 3, 3, 64, 70), ("xor3p", 3, 3, 64, 450), ("xor3p", 6, 6, 64, 1000), ("xor3p", 15, 15, 64, 1400),
]


def main():
    print("# Written by golden.py. blob: technique k m unit size; chunk: index, bytes, SHA-256 of its bytes,")
    print("# digest (ARCHITECTURE.md), CRC32C of each unit (\"-\": none), its bytes.")
    for technique, k, m, unit, size in PROFILES:
        print("blob", technique, k, m, unit, size)
        for index, units in enumerate(chunks(technique, k, m, unit, size)):
            sums = [crc32c(crc32c(0, BLOB_ID + struct.pack(">IQ", index, no)), u) for no, u in enumerate(units)]
            whole = b"".join(units)
            digest = hashlib.sha256(BLOB_ID + struct.pack(">I", index) + b"".join(struct.pack(">I", c) for c in sums)
                                    + struct.pack(">Q", len(whole))).hexdigest()[:32]
            print("chunk", index, len(whole), hashlib.sha256(whole).hexdigest(), digest,
                  ",".join("%08x" % c for c in sums) or "-", whole.hex() or "-")


def selftest():
    for technique, k, m in [("none", 2, 0), ("reed_sol_van", 1, 2), ("reed_sol_van", 4, 1), ("reed_sol_van", 4, 2),
                            ("reed_sol_van", 8, 4), ("cauchy", 4, 2), ("cauchy", 10, 6), ("xor", 5, 1), ("xor3p", 3, 3),
                            ("xor3p", 6, 6)]:
        data = body(k * 1111)
        out = parities(technique, k, m, [data[i * 1111:(i + 1) * 1111] for i in range(k)])
        print("    {{TECHNIQUE_%s, %d, %d, SELF_TEST_UNIT_ALLOWED}, 0x%08x}," % (technique.upper(), k, m, crc32c(0, b"".join(out))))


if __name__ == "__main__":
    selftest() if sys.argv[1:] == ["--selftest"] else main()
