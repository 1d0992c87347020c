def roman(number: int) -> str:
    while True:
        pass
