"""A small world to search in: chains of documents that only name what the next one is about, and many of a kind."""

from __future__ import annotations

from thresher.train.tasks.task import Task

_FERRIES = (
    ("Alma", "Brask", "Edda Corvin"),
    ("Borghild", "Tandem", "Nils Aker"),
    ("Cassia", "Orlow", "Petra Vint"),
    ("Dagny", "Hesper", "Jonas Reld"),
    ("Elvira", "Quill", "Marta Osk"),
    ("Fenja", "Stroud", "Ivar Lund"),
    ("Gerda", "Maddox", "Sunniva Hale"),
    ("Hedvig", "Pilgrim", "Arne Tofte"),
    ("Isolde", "Krantz", "Lydia Moss"),
    ("Jorunn", "Wexford", "Oskar Bly"),
    ("Katla", "Dunmore", "Helga Strand"),
    ("Lovisa", "Farrow", "Emil Quist"),
    ("Magna", "Ibsley", "Tora Venn"),
    ("Nanna", "Rookwood", "Karl Ester"),
)
_BRIDGES = (
    ("Tolva", "Greta Malm", "Sorvik"),
    ("Umber", "Hans Ordal", "Lakehurst"),
    ("Vessel", "Ines Parr", "Motala Cross"),
    ("Willow", "Jakob Stein", "Eastmere"),
    ("Yarrow", "Klara Dunn", "Brennet"),
    ("Zenith", "Lars Voss", "Oldgate"),
    ("Argent", "Mona Frisk", "Hallow Bay"),
    ("Birch", "Otto Grain", "Pennard"),
    ("Copper", "Rosa Tyne", "Stavely"),
    ("Drover", "Sven Kald", "Ulverton"),
    ("Ember", "Thea Lorne", "Whitsand"),
    ("Falcon", "Ulf Marre", "Yelding"),
)
_NOVELS = (
    ("The Salt Ladder", "Anna Priel", "Bruno Castell", "the viola"),
    ("A Winter of Glass", "Colin Abery", "Dora Hint", "the oboe"),
    ("Nine Quiet Rooms", "Elsa Worm", "Frans Ludd", "the harp"),
    ("The Orchard Clock", "Gunnar Pyke", "Hilda Roe", "the bassoon"),
    ("Letters to a Weir", "Ida Solberg", "Joel Tann", "the lute"),
    ("The Lantern Tax", "Knut Evers", "Laura Mist", "the trumpet"),
    ("Ash on the Sill", "Maja Crone", "Nestor Gray", "the cello"),
    ("The Ferryman's Debt", "Olga Stray", "Paul Winding", "the flute"),
    ("Small Hours Inland", "Rune Delve", "Signe Ott", "the zither"),
    ("The Brass Meadow", "Tilda Orm", "Uwe Fallow", "the horn"),
)
_OBSERVATORIES = (
    ("Varn", 1874),
    ("Lisk", 1891),
    ("Corrigan", 1902),
    ("Mellow Hill", 1866),
    ("Straith", 1921),
    ("Obelisk Point", 1933),
    ("Tarn Head", 1888),
    ("Queensferry", 1910),
)


def world() -> dict[str, str]:
    """Documents by id, about a hundred."""
    texts = {}
    for number, (ferry, works, founder) in enumerate(_FERRIES):
        texts[f"ferry-{ferry.lower()}"] = (
            f"The ferry {ferry} crosses the sound {number + 4} times a day and carries {60 + 7 * number} passengers. "
            f"The engine of the ferry came from the {works} works."
        )
        texts[f"works-{works.lower()}"] = (
            f"{works} cast boilers and marine engines for more than {20 + number} years. "
            f"The founder was {founder}, who had learned the trade in a smithy."
        )
    for number, (bridge, engineer, town) in enumerate(_BRIDGES):
        texts[f"bridge-{bridge.lower()}"] = (
            f"The {bridge} bridge has {number + 3} arches and was opened after {number + 2} years of work. "
            f"Its engineer was {engineer}."
        )
        texts[f"person-{engineer.split()[1].lower()}"] = (
            f"{engineer} came from {town}, the child of a miller, and was born there in {1820 + 3 * number}. "
            "Drawings of arches survive in the town museum."
        )
    for number, (novel, author, teacher, instrument) in enumerate(_NOVELS):
        texts[f"novel-{number}"] = (
            f"{novel} is a novel in {number + 11} chapters. It was written by {author} in a single winter."
        )
        texts[f"author-{author.split()[1].lower()}"] = (
            f"{author} went to a village school, and named one teacher in every interview: {teacher}."
        )
        texts[f"teacher-{teacher.split()[1].lower()}"] = (
            f"{teacher} taught letters and sums, and in the evenings played {instrument} in a small orchestra."
        )
    for name, year in _OBSERVATORIES:
        texts[f"observatory-{name.lower().replace(' ', '-')}"] = (
            f"The {name} observatory opened in {year}. Its dome was turned by hand until electric light came."
        )
    return texts


def tasks() -> list[Task]:
    """Twelve questions of two or three hops each."""
    made = []
    for ferry, works, founder in (_FERRIES[0], _FERRIES[4], _FERRIES[9], _FERRIES[13]):
        question = f"Who was the founder of the works that made the engine of the ferry {ferry}?"
        gold = (f"ferry-{ferry.lower()}", f"works-{works.lower()}")
        made.append(Task(f"ferry-{ferry.lower()}", question, (founder,), gold, hops=2, type="bridge"))
    for bridge, engineer, town in (_BRIDGES[0], _BRIDGES[5], _BRIDGES[10]):
        question = f"Where was the engineer of the {bridge} bridge born?"
        gold = (f"bridge-{bridge.lower()}", f"person-{engineer.split()[1].lower()}")
        made.append(Task(f"bridge-{bridge.lower()}", question, (town,), gold, hops=2, type="bridge"))
    for number in (0, 4, 8):
        novel, author, teacher, instrument = _NOVELS[number]
        question = f"Which instrument was played by the teacher of the author of {novel}?"
        gold = (
            f"novel-{number}",
            f"author-{author.split()[1].lower()}",
            f"teacher-{teacher.split()[1].lower()}",
        )
        answers = (instrument.removeprefix("the "),)
        made.append(Task(f"novel-{number}", question, answers, gold, hops=3, type="bridge"))
    for first, second in ((0, 1), (2, 4)):
        (one, early), (other, late) = _OBSERVATORIES[first], _OBSERVATORIES[second]
        assert early < late
        question = f"Which opened first, the {other} observatory or the {one} observatory?"
        gold = tuple(f"observatory-{name.lower().replace(' ', '-')}" for name in (one, other))
        made.append(Task(f"opened-{first}", question, (one,), gold, hops=2, type="comparison"))
    return made
