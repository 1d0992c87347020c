from original import Ledger


def test_none():
    assert Ledger([]).balances() == {}


def test_some():
    assert Ledger([("b", 2), ("a", 1), ("b", -1)]).balances() == {"a": 1, "b": 1}


def test_many():
    ledger = Ledger([(f"n{n % 30:02}", n) for n in range(300)])
    assert sum(ledger.balances().values()) == sum(range(300))
