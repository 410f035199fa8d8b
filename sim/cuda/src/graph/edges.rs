//! The edges of graphs. All are plain: data of edges, which programmatic launches need, is refused unless it is zero.

use super::exports::list;
use super::state;
use crate::boundary::exports;
use crate::code::{INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::ffi::{In, Out};

fn add(graph: usize, from: In<usize>, to: In<usize>, count: usize) -> Outcome {
    let graph = state::get(graph)?;
    (0..count).try_for_each(|index| graph.connect(from.element(index)?, to.element(index)?))
}

fn remove(graph: usize, from: In<usize>, to: In<usize>, count: usize) -> Outcome {
    let graph = state::get(graph)?;
    (0..count).try_for_each(|index| graph.disconnect(from.element(index)?, to.element(index)?))
}

/// `CUgraphEdgeData` has 8 bytes.
pub(super) fn plain(data: In<u64>, count: usize) -> Outcome {
    let zero = data.is_null() || (0..count).all(|index| data.element(index) == Ok(0));
    if zero { Ok(()) } else { Err(NOT_SUPPORTED) }
}

fn add_v2(graph: usize, from: In<usize>, to: In<usize>, data: In<u64>, count: usize) -> Outcome {
    plain(data, count)?;
    add(graph, from, to, count)
}

fn remove_v2(graph: usize, from: In<usize>, to: In<usize>, data: In<u64>, count: usize) -> Outcome {
    plain(data, count)?;
    remove(graph, from, to, count)
}

/// The ends of the edges are wanted together, or their number alone.
fn edges(graph: usize, from: Out<usize>, to: Out<usize>, count: Out<usize>) -> Outcome {
    if from.required() != to.required() {
        return Err(INVALID_VALUE);
    }
    let edges = state::get(graph)?.edges();
    let (starts, ends): (Vec<usize>, Vec<usize>) = edges.into_iter().unzip();
    let room = count.as_input().get()?;
    list(&starts, from, count)?;
    if from.required().is_ok() {
        count.set(room)?;
    }
    list(&ends, to, count)
}

fn edges_v2(graph: usize, from: Out<usize>, to: Out<usize>, data: Out<u64>, count: Out<usize>) -> Outcome {
    check_data(data, from)?;
    edges(graph, from, to, count)?;
    clear(data, count)
}

/// Data is wanted of edges that are listed only: there the number of edges does not exceed the room of the caller's arrays.
fn check_data(data: Out<u64>, listed: Out<usize>) -> Outcome {
    if data.required().is_ok() { listed.required() } else { Ok(()) }
}

/// Writes the data of the edges that were listed.
fn clear(data: Out<u64>, count: Out<usize>) -> Outcome {
    if data.required().is_ok() {
        (0..count.as_input().get()?).for_each(|index| data.element(index).set_if_wanted(0));
    }
    Ok(())
}

fn before(node: usize, out: Out<usize>, count: Out<usize>) -> Outcome {
    list(&state::of_node(node)?.before(node)?, out, count)
}

fn before_v2(node: usize, out: Out<usize>, data: Out<u64>, count: Out<usize>) -> Outcome {
    check_data(data, out)?;
    before(node, out, count)?;
    clear(data, count)
}

fn behind(node: usize, out: Out<usize>, count: Out<usize>) -> Outcome {
    let edges = state::of_node(node)?.edges();
    let behind: Vec<usize> = edges.into_iter().filter(|(from, _)| *from == node).map(|(_, to)| to).collect();
    list(&behind, out, count)
}

fn behind_v2(node: usize, out: Out<usize>, data: Out<u64>, count: Out<usize>) -> Outcome {
    check_data(data, out)?;
    behind(node, out, count)?;
    clear(data, count)
}

exports! {
    cuGraphAddDependencies => add(graph: usize, from: In<usize>, to: In<usize>, count: usize);
    cuGraphAddDependencies_v2 => add_v2(graph: usize, from: In<usize>, to: In<usize>, data: In<u64>, count: usize);
    cuGraphRemoveDependencies => remove(graph: usize, from: In<usize>, to: In<usize>, count: usize);
    cuGraphRemoveDependencies_v2 =>
        remove_v2(graph: usize, from: In<usize>, to: In<usize>, data: In<u64>, count: usize);
    cuGraphGetEdges => edges(graph: usize, from: Out<usize>, to: Out<usize>, count: Out<usize>);
    cuGraphGetEdges_v2 =>
        edges_v2(graph: usize, from: Out<usize>, to: Out<usize>, data: Out<u64>, count: Out<usize>);
    cuGraphNodeGetDependencies => before(node: usize, out: Out<usize>, count: Out<usize>);
    cuGraphNodeGetDependencies_v2 => before_v2(node: usize, out: Out<usize>, data: Out<u64>, count: Out<usize>);
    cuGraphNodeGetDependentNodes => behind(node: usize, out: Out<usize>, count: Out<usize>);
    cuGraphNodeGetDependentNodes_v2 => behind_v2(node: usize, out: Out<usize>, data: Out<u64>, count: Out<usize>);
}
