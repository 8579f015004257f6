"""All cases, by what they are."""

from tests.hostile import accidents, malicious, odd

TABLES = {"Malicious files": malicious.cases, "Odd data": odd.cases, "Accidents of checkpoints": accidents.cases}
