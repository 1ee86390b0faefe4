import pytest

from weft.model.masking import without_passwords, worth_masking


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql+pg8000://ada:pw@db:5432/x", "postgresql+pg8000://ada:***@db:5432/x"),
        ("at postgresql://ada:p@ss/w@db/x.", "at postgresql://ada:***@db/x."),
        ('Write "postgresql://USER:PASSWORD@HOST/NAME"', 'Write "postgresql://USER:PASSWORD@HOST/NAME"'),
        ("postgresql://:pw@db/x", "postgresql://:***@db/x"),
        ("postgresql://db/x?user=ada&password=p%20w&sslmode=on", "postgresql://db/x?user=ada&password=***&sslmode=on"),
        ("'https://example.org/a?access_token=abc'", "'https://example.org/a?access_token=***'"),
        ("https://example.org:80/a/b is a page", "https://example.org:80/a/b is a page"),
        ("ada@example.org: 5 of 7", "ada@example.org: 5 of 7"),
        ("postgresql+pg8000://ada@db/x", "postgresql+pg8000://ada@db/x"),
    ],
)
def test_passwords_of_urls_are_masked(text, masked):
    assert without_passwords(text) == masked


def test_texts_of_few_letters_are_not_worth_masking():
    assert worth_masking(["", "1", "yes", "hush", "password", "hush"]) == ["password", "hush"]
