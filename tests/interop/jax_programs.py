"""JAX programs on four chips of the software TPU, each compared with JAX on the CPU: what test_jax.py runs.

Prints a line of JSON for each: its name, and what is wrong with it (nothing: "").
"""

import functools
import itertools
import json
import pickle
import sys
import traceback

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback
from jax.experimental.serialize_executable import deserialize_and_load, serialize
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

PROGRAMS = {}
CHIPS = jax.devices("ttpu")
X = np.linspace(-2, 3, 32, dtype=np.float32).reshape(8, 4)


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def on_cpu(function, *arguments):
    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu):
        return jax.jit(function)(*jax.device_put(arguments, cpu))


def check_equal(got, want, tolerance=1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(np.asarray(a), np.asarray(b), tolerance, tolerance), got, want)


def compare(function, *arguments, tolerance=1e-5):
    """The same program on a chip and on the CPU."""
    check_equal(jax.jit(function)(*arguments), on_cpu(function, *arguments), tolerance)


def mesh(shape, names):
    return Mesh(np.asarray(CHIPS).reshape(shape), names, axis_types=(AxisType.Auto,) * len(names))


QUARTERS = P("i")


def over_chips(body, *arguments, out=QUARTERS):
    """body on four chips, each with a quarter of every argument."""
    mapped = jax.shard_map(body, mesh=mesh((4,), ("i",)), in_specs=QUARTERS, out_specs=out, check_vma=False)
    return jax.jit(mapped)(*arguments)


# ---- one chip ----------------------------------------------------------------------------------------------------


@program
def jit():
    compare(lambda x: jnp.sin(x) @ x.T + jax.nn.gelu(x).sum(), X)


@program
def grad():
    # Far from 1, where 1 - tanh^2 would magnify the few ulps by which the tanh of JAX's CPU is off since 0.12.
    compare(jax.grad(lambda x: (jnp.tanh(x @ x.T / 16) ** 2).sum()), X)


@program
def vmap():
    compare(jax.vmap(lambda x, y: jnp.dot(x, y) + jnp.sort(x), in_axes=(0, None)), X, X[0])


@program
def scan():
    compare(lambda x: lax.scan(lambda c, row: (c * 0.5 + row, jnp.cumsum(c)), jnp.zeros(4), x), X)


@program
def while_loop():
    compare(lambda x: lax.while_loop(lambda c: (c**2).sum() < 1e4, lambda c: c * 1.5 + 1, x), X)


@program
def cond():
    branch = lambda x, i: lax.switch(i, [jnp.sin, jnp.exp, lambda v: v * 2], x)  # noqa: E731
    for i in range(3):
        compare(branch, X, i)


@program
def grad_of_a_loop():
    compare(jax.grad(lambda x: lax.fori_loop(0, 5, lambda i, c: jnp.sin(c) * 1.1, x).sum()), X)


@program
def random_threefry():
    def draw(seed):
        key = jax.random.key(seed)
        a, b, c = jax.random.split(key, 3)
        return jax.random.normal(a, (33,)), jax.random.uniform(b, (5, 7)), jax.random.permutation(c, 20)

    compare(draw, 7)


@program
def random_rbg():
    """Another generator, whose bits a platform chooses: the same numbers each time, and plausible ones."""
    draw = jax.jit(lambda seed: jax.random.normal(jax.random.key(seed, impl="rbg"), (10000,)))
    first, second = np.asarray(draw(3)), np.asarray(draw(3))
    assert (first == second).all() and abs(first.mean()) < 0.05 and abs(first.std() - 1) < 0.05


@program
def sort():
    x = np.random.RandomState(0).randint(0, 50, (6, 40))
    compare(lambda x: (jnp.sort(x), jnp.argsort(x), lax.top_k(x, 5), jnp.unique(x, size=60)), x)


@program
def gather_and_scatter():
    compare(
        lambda x, i: (x[i], x.at[i].add(2.0), x.at[:, 1].set(0.0), jnp.take(x, i, axis=1, mode="clip")),
        X,
        np.array([0, 3, 3]),
    )


@program
def convolution():
    x, w = np.random.RandomState(1).randn(2, 3, 9, 9), np.random.RandomState(2).randn(4, 3, 3, 3)
    compare(jax.grad(lambda x, w: jnp.sin(lax.conv(x, w, (2, 2), "SAME")).sum(), (0, 1)), x, w, tolerance=1e-4)


@program
def linear_algebra():
    a = X.T @ X + 4 * np.eye(4, dtype=np.float32)
    compare(
        lambda a, b: (jnp.linalg.cholesky(a), jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(a), True), b)), a, X.T
    )
    compare(lambda a: lax.linalg.triangular_solve(jnp.tril(a), a, left_side=True, lower=True), a)


@program
def factorisations():
    """JAX's custom calls to a TPU's compiler; what is unique is compared, and the rest by what it is made for."""
    square = np.random.RandomState(1).randn(3, 6, 6).astype(np.float32)
    tall = square[..., :4] + 1j * square[..., 2:]
    compare(
        lambda a: (jnp.linalg.inv(a), jnp.linalg.det(a), lax.linalg.lu(a), jnp.linalg.solve(a, a[..., :2])),
        square,
    )
    compare(lambda a: (*jnp.linalg.qr(a), jnp.linalg.qr(a, mode="complete")[0]), tall, tolerance=1e-4)
    compare(
        lambda a: (jnp.linalg.eigvalsh(a), jnp.linalg.svd(a, compute_uv=False), jnp.linalg.pinv(a)),
        square,
        tolerance=1e-4,
    )
    values, vectors = jax.jit(jnp.linalg.eigh)(square)
    symmetric = (square + np.swapaxes(square, -1, -2)) / 2
    check_equal(np.asarray(vectors) * np.asarray(values)[:, None] @ np.swapaxes(vectors, -1, -2), symmetric, 1e-4)
    compare(jax.grad(lambda a: jnp.linalg.slogdet(a)[1].sum()), square, tolerance=1e-4)


@program
def approximate_top_k():
    compare(lambda x: (*lax.approx_max_k(x, 3), *lax.approx_min_k(x, 2, reduction_dimension=0)), X)


@program
def custom_calls_that_are_unknown_are_refused():
    try:
        jax.jit(jax.ffi.ffi_call("nobody_knows_this", jax.ShapeDtypeStruct((8, 4), np.float32)))(X)
    except Exception as error:
        assert 'no target "nobody_knows_this"' in str(error), error
    else:
        raise AssertionError("it ran")


@program
def host_callbacks():
    """A program calls Python while it runs: in a loop, in order, on four chips; and its errors come back."""
    shape = jax.ShapeDtypeStruct((4,), np.float32)
    twice = lambda x: jax.pure_callback(lambda a: np.asarray(a) * 2, shape, x)  # noqa: E731
    check_equal(jax.jit(lambda x: lax.fori_loop(0, 5, lambda i, c: twice(c) + 1, x))(X[0]), X[0] * 32 + 31)
    seen = []

    @jax.jit
    def tell(x):
        for row in range(4):
            io_callback(lambda a: seen.append(float(a)), None, x[row, 0], ordered=True)
        return x.sum()

    check_equal(tell(X), X.sum())
    jax.effects_barrier()
    assert seen == X[:4, 0].tolist(), seen
    check_equal(
        over_chips(lambda x: jax.pure_callback(np.negative, jax.ShapeDtypeStruct((2, 4), np.float32), x), X), -X
    )
    try:
        jax.block_until_ready(jax.jit(lambda x: jax.pure_callback(lambda a: 1 / 0, shape, x))(X[0]))
    except Exception as error:
        assert "division by zero" in str(error), error
    else:
        raise AssertionError("it ran")


@program
def bfloat16_and_integers():
    compare(lambda x: (x.astype(jnp.bfloat16) * 3).astype(jnp.float32), X, tolerance=1e-2)  # XLA's CPU rounds less
    compare(lambda x: (x.astype(jnp.int8) // 2, x.astype(jnp.uint32) >> 1, x.astype(jnp.int32) % 5), abs(X) * 20)


# ---- buffers and executables -------------------------------------------------------------------------------------


@program
def donation():
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = jax.device_put(X, CHIPS[0])
    y = step(x)
    assert x.is_deleted()
    check_equal(y, X + 1)


@program
def memories_and_devices():
    on_second = jax.device_put(X, CHIPS[1])
    assert on_second.devices() == {CHIPS[1]}
    check_equal(jax.device_put(on_second, CHIPS[2]), X)
    pinned = jax.device_put(X, jax.sharding.SingleDeviceSharding(CHIPS[0], memory_kind="pinned_host"))
    assert pinned.sharding.memory_kind == "pinned_host"
    check_equal(jax.device_put(pinned, jax.sharding.SingleDeviceSharding(CHIPS[3], memory_kind="device")), X)
    check_equal(jax.device_put(X.T[::2, ::-1], CHIPS[0]), X.T[::2, ::-1])  # strides


@program
def compiled_programs_answer():
    compiled = jax.jit(lambda x: jnp.sin(x) @ x.T).lower(X).compile()
    memory = compiled.memory_analysis()
    assert memory.argument_size_in_bytes == X.nbytes and memory.output_size_in_bytes == 256
    assert compiled.cost_analysis()["flops"] > 0 and "ENTRY" in compiled.as_text()
    payload, in_tree, out_tree = serialize(compiled)
    again = deserialize_and_load(pickle.loads(pickle.dumps(payload)), in_tree, out_tree, execution_devices=CHIPS[:1])
    check_equal(again(X), compiled(X), 0)


# ---- several chips -----------------------------------------------------------------------------------------------


@program
def pmap():
    x = X.reshape(4, 8)
    check_equal(jax.pmap(lambda x: lax.psum(x, "i"), axis_name="i")(x), np.tile(x.sum(0), (4, 1)))


@program
def collectives():
    quarters = X.reshape(4, 2, 4)
    check_equal(over_chips(lambda x: lax.psum(x, "i"), X), np.tile(quarters.sum(0), (4, 1)))
    check_equal(over_chips(lambda x: lax.pmax(x, "i"), X), np.tile(quarters.max(0), (4, 1)))
    check_equal(over_chips(lambda x: lax.all_gather(x, "i", tiled=True), X, out=P()), X)
    check_equal(over_chips(lambda x: lax.ppermute(x, "i", [(k, (k + 1) % 4) for k in range(4)]), X), np.roll(X, 2, 0))
    check_equal(over_chips(lambda x: lax.all_to_all(x, "i", 1, 0, tiled=True), X).reshape(4, 8), X.T)
    check_equal(over_chips(lambda x: lax.psum_scatter(x.T, "i", tiled=True), X), quarters.sum(0).T)
    check_equal(over_chips(lambda x: x * 0 + lax.axis_index("i"), X)[::2, 0], np.arange(4))
    groups = over_chips(lambda x: lax.psum(x, "i", axis_index_groups=[[0, 3], [1, 2]]), X).reshape(4, 2, 4)
    check_equal(groups[0], quarters[0] + quarters[3])
    check_equal(groups[1], quarters[1] + quarters[2])


@program
def collectives_in_a_loop():
    def body(x):
        return lax.scan(
            lambda c, _: (lax.ppermute(c, "i", [(k, (k + 1) % 4) for k in range(4)]) + 1, None), x, length=50
        )[0]

    for _ in range(20):
        check_equal(over_chips(body, X), np.roll(X, 4, 0) + 50)


@program
def grad_through_collectives():
    def loss(x):
        return over_chips(lambda x: lax.pmean((x**2).sum(), "i")[None], x).sum()

    check_equal(jax.grad(loss)(X), 2 * X)


@program
def part_of_the_mesh_by_hand():
    by_two = mesh((2, 2), ("a", "b"))

    def body(x):
        return lax.ppermute(x, "a", [(0, 1), (1, 0)]) * 2

    mapped = jax.shard_map(body, mesh=by_two, in_specs=P("a"), out_specs=P("a"), axis_names={"a"})
    x = jax.device_put(X, NamedSharding(by_two, P("a", "b")))
    check_equal(jax.jit(lambda x: mapped(x + 1) - 1)(x), np.roll(X + 1, 4, 0) * 2 - 1)


@program
def shardings_on_arguments_and_results():
    by_two = mesh((2, 2), ("a", "b"))
    x = jax.device_put(X, NamedSharding(by_two, P("a", "b")))
    w = jax.device_put(X.T.copy(), NamedSharding(by_two, P(None, "a")))
    y = jax.jit(lambda x, w: jnp.tanh(x) @ w, out_shardings=NamedSharding(by_two, P(("b", "a"), None)))(x, w)
    assert y.sharding.spec == P(("b", "a"), None) and y.addressable_shards[0].data.shape == (2, 8)
    check_equal(y, np.tanh(X) @ X.T)
    stays = jax.jit(lambda x: jnp.exp(x) * 2 + x)(x)
    assert stays.addressable_shards[0].data.shape == (4, 2)
    check_equal(stays, np.exp(X) * 2 + X)
    wish = NamedSharding(by_two, P("b", None))
    check_equal(jax.jit(lambda x: lax.with_sharding_constraint(x * 2, wish).sum(1))(x), (X * 2).sum(1))
    check_equal(jax.device_put(x, NamedSharding(by_two, P(None, ("b", "a")))), X)


@program
def a_permuted_mesh():
    turned = Mesh(np.asarray(CHIPS)[[2, 0, 3, 1]], ("i",), axis_types=(AxisType.Auto,))
    x = jax.device_put(X, NamedSharding(turned, P("i")))
    check_equal(jax.jit(lambda x: jnp.cumsum(x, 0))(x), np.cumsum(X, 0))


# ---- a training run ----------------------------------------------------------------------------------------------


def loss_of(weights, x, y):
    for w, b in weights[:-1]:
        x = jax.nn.gelu(x @ w + b)
    w, b = weights[-1]
    return jnp.mean((x @ w + b - y) ** 2)


def adam(weights, moments, step, x, y):
    loss, gradient = jax.value_and_grad(loss_of)(weights, x, y)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradient)
    second = jax.tree.map(lambda m, g: 0.999 * m + 0.001 * g * g, moments[1], gradient)
    a, b = 1 - 0.9**step, 1 - 0.999**step
    weights = jax.tree.map(lambda w, m, v: w - 0.01 * (m / a) / (jnp.sqrt(v / b) + 1e-8), weights, first, second)
    return weights, (first, second), loss


def training_data():
    random = np.random.RandomState(0)
    sizes = [8, 32, 32, 1]
    weights = [
        (random.randn(m, n).astype(np.float32) / m**0.5, np.zeros(n, np.float32)) for m, n in itertools.pairwise(sizes)
    ]
    x = random.randn(64, 8).astype(np.float32)
    return weights, x, np.sin(x.sum(1, keepdims=True))


def train(step, weights, x, y):
    moments = jax.tree.map(lambda w: jnp.zeros_like(w), weights), jax.tree.map(lambda w: jnp.zeros_like(w), weights)
    losses = []
    for i in range(1, 31):
        weights, moments, loss = step(weights, moments, np.float32(i), x, y)
        losses.append(float(loss))
    return losses


@functools.cache
def losses_on_cpu():
    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu):
        return train(jax.jit(adam), *jax.device_put(training_data(), cpu))


@program
def training():
    losses = train(jax.jit(adam, donate_argnums=(0, 1)), *training_data())
    assert losses[-1] < 0.7 * losses[0], losses
    check_equal(losses, losses_on_cpu(), 1e-3)


@program
def training_with_the_batch_on_four_chips():
    four = mesh((4,), ("batch",))
    weights, x, y = training_data()
    batch, everywhere = NamedSharding(four, P("batch")), NamedSharding(four, P())
    losses = train(
        jax.jit(adam), jax.device_put(weights, everywhere), jax.device_put(x, batch), jax.device_put(y, batch)
    )
    check_equal(losses, losses_on_cpu(), 1e-3)


def main():
    jax.config.update("jax_default_matmul_precision", "highest")
    for name, function in PROGRAMS.items():
        if len(sys.argv) > 1 and not any(word in name for word in sys.argv[1:]):
            continue
        wrong = ""
        try:
            function()
        except Exception:
            wrong = traceback.format_exc(limit=-3)
        print(json.dumps({"name": name, "wrong": wrong}), flush=True)


if __name__ == "__main__":
    main()
