def mirr(values, finance_rate, reinvest_rate):
    values = np.asarray(values)
    n = values.size
    if isinstance(finance_rate, Decimal):
        n = Decimal(n)
    positive, negative = values > 0, values < 0
    if not (positive.any() and negative.any()):
        return np.nan
    periods = np.arange(values.size)
    numer = np.abs((values * positive * (1 + reinvest_rate) ** -periods).sum())
    denom = np.abs((values * negative * (1 + finance_rate) ** -periods).sum())
    return (numer / denom) ** (1 / (n - 1)) * (1 + reinvest_rate) - 1
