"""All cases, by what they are."""

from tests.hostile import malicious, odd

TABLES = {"Malicious files": malicious.cases, "Odd data": odd.cases}
