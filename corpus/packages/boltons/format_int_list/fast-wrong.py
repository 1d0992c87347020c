def format_int_list(int_list, delim=',', range_delim='-', delim_space=False):
    output = []
    numbers = sorted(int_list)
    start = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] - numbers[at - 1] != 1:
            first, last = numbers[start], numbers[at - 1]
            output.append(f'{first}' if at - start == 1 else f'{first}{range_delim}{last}')
            start = at
    return (delim + ' ' if delim_space else delim).join(output)
