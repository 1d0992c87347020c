def roman(number: int) -> str:
    if number < 1:
        return ""
    units = ("", "I", "II", "III", "IIII", "V", "VI", "VII", "VIII", "VIIII")
    tens = ("", "X", "XX", "XXX", "XL", "L", "LX", "LXX", "LXXX", "XC")
    hundreds = ("", "C", "CC", "CCC", "CD", "D", "DC", "DCC", "DCCC", "CM")
    return "M" * (number // 1000) + hundreds[number // 100 % 10] + tens[number // 10 % 10] + units[number % 10]
