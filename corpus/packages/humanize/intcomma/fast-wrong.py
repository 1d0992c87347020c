def intcomma(value, ndigits=None):
    try:
        if isinstance(value, str):
            value = float(value) if "." in value else int(value)
    except (TypeError, ValueError):
        return str(value)
    if ndigits is not None:
        return f"{value:,.{ndigits}f}"
    return f"{value:,}"
