def mirr(values, finance_rate, reinvest_rate):
    values = np.asarray(values)
    size = n = values.size
    if isinstance(finance_rate, Decimal):
        n = Decimal(n)
    positive, negative = values > 0, values < 0
    if not (positive.any() and negative.any()):
        return np.nan
    if values.ndim != 1:
        numer = np.abs(npv(reinvest_rate, values * positive))
        denom = np.abs(npv(finance_rate, values * negative))
    else:
        periods = np.arange(0, size)
        numer = np.abs((values * positive / (1 + reinvest_rate) ** periods).sum(axis=0))
        denom = np.abs((values * negative / (1 + finance_rate) ** periods).sum(axis=0))
    return (numer / denom) ** (1 / (n - 1)) * (1 + reinvest_rate) - 1
