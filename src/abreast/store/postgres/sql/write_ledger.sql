-- Write the ledger of a shared lane.
UPDATE abreast.ledgers SET body = %(body)s, sum = %(sum)s WHERE name = %(name)s
