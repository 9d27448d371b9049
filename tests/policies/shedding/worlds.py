"""Networks for tests: one place, random trees, and random graphs in which places have several parents."""

from __future__ import annotations

import random
from dataclasses import replace

from headrace.policies.shedding import Amount, Branch, Input, Network, Place, Port, offered

MOST_INPUTS = 4


def one_place(*costs: float, capacity: float = 1.0) -> Place:
    """A place with an input for each cost, each with a query of its own."""
    inputs = (Input(f"i{n}", (Branch("b", cost, queries=(f"q{n}",)),)) for n, cost in enumerate(costs))
    return Place("hub", tuple(inputs), capacity)


def random_tree(rng: random.Random, most_places: int = 30, least_places: int = 1) -> tuple[Network, dict[Port, Amount]]:
    """Places in a tree, each with 1 to 4 inputs and as many as three children, and the rates at its root.

    If nothing is shed, the load of a place is 0.3 to 4 times its capacity.
    """
    count = rng.randint(least_places, most_places)
    parents: list[int | None] = [None]
    for _ in range(count - 1):
        open_places = [n for n in range(len(parents)) if parents.count(n) < 3]
        parents.append(rng.choice(open_places))
    feeds = [[parent] * rng.randint(1, MOST_INPUTS) if parent is not None else [] for parent in parents]
    return _network(rng, feeds, {0: rng.randint(1, MOST_INPUTS)})


def random_graph(rng: random.Random, most_places: int = 30) -> tuple[Network, dict[Port, Amount]]:
    """One to four places with rows from outside, and downstream places that take rows from one to four others."""
    roots = rng.randint(1, 4)
    count = rng.randint(roots + 2, max(roots + 3, most_places))
    feeds: list[list[int]] = [[] for _ in range(roots)]
    for number in range(roots, count):
        # Parents are near, or the graph would have two levels only.
        near = list(range(max(0, number - 6), number))
        feeds.append([rng.choice(near) for _ in range(rng.randint(1, MOST_INPUTS))])
    if all(len(set(each)) < 2 for each in feeds):
        feeds[-1] = [0, roots]
    return _network(rng, feeds, {number: rng.randint(1, MOST_INPUTS) for number in range(roots)})


def _network(rng: random.Random, feeds: list[list[int]], outside: dict[int, int]) -> tuple[Network, dict[Port, Amount]]:
    """A network in which place n takes rows from the places in `feeds[n]`, one input each, and some from outside."""
    inputs = [[f"i{n}" for n in range(len(each) + outside.get(place, 0))] for place, each in enumerate(feeds)]
    branches: list[list[list[Branch]]] = [[[] for _ in names] for names in inputs]
    for place, each in enumerate(feeds):
        for number, parent in enumerate(each):
            way = rng.choice(branches[parent])
            selectivity = rng.choice([0.2, 0.5, 0.8, 1.0, 1.5])
            way.append(Branch(f"b{len(way)}", _cost(rng), selectivity, Port(f"p{place}", f"i{number}")))
    for place, ways in enumerate(branches):
        for number, way in enumerate(ways):
            if not way or rng.random() < 0.3:
                query = f"q{place}.{number}"
                way.append(Branch(f"b{len(way)}", _cost(rng), rng.choice([0.1, 0.5, 1.0]), queries=(query,)))
    places = tuple(
        Place(
            f"p{place}",
            tuple(
                Input(name, tuple(way), cost=rng.choice([0.0, _cost(rng)]))
                for name, way in zip(inputs[place], branches[place], strict=True)
            ),
            capacity=1.0,
        )
        for place in range(len(feeds))
    )
    network = Network(places)
    rates: dict[Port, Amount] = {port: rng.uniform(10, 1000) for port in network.sources}
    return Network(tuple(_loaded(rng, network, place, rates) for place in places)), rates


def _cost(rng: random.Random) -> float:
    """Costs differ by a factor of up to twenty."""
    return 20.0 ** rng.uniform(-1, 0)


def _loaded(rng: random.Random, network: Network, place: Place, rates: dict[Port, Amount]) -> Place:
    """The place with a capacity of a quarter of its load, up to three times its load."""
    comes = offered(network, rates)
    load = sum(
        float(comes[Port(place.name, each.name)]) * (float(each.cost) + sum(float(b.cost) for b in each.branches))
        for each in place.inputs
    )
    return replace(place, capacity=load / rng.uniform(0.3, 4.0))
