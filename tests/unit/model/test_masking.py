import pytest

from weft.model.masking import without_passwords, without_secrets, worth_masking


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


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("port 15432, 54321, 5432_a", "port 15432, 54321, 5432_a"),
        ("port 5432, db:5432/x, a=5432", "port ***, db:***/x, a=***"),
        ("5432", "***"),
        ("mypassword1", "my***1"),
        ("a$ecrets b$ecret", "a$ecrets b***"),
        ("é5432é", "é***é"),
        ("longer-5432-one", "***"),
    ],
)
def test_secrets_of_few_letters_are_masked_as_whole_words_alone(text, masked):
    assert without_secrets(text, ["5432", "$ecret", "password", "longer-5432-one"]) == masked


def test_nothing_is_masked_without_secrets():
    assert without_secrets("a text", []) == "a text"
