#pragma once

#include <string>
#include <vector>

#include "src/comm/mesh.hpp"
#include "src/nn/module.hpp"

namespace lockstep {

// Parameters of a model lie on a mesh. From where they lie it follows which gradients
// are added up over which ranks, and what counts once in a norm.

/// Says of parameters that all ranks of `line` hold them alike, and must step alike; each
/// rank says so, and says it again without effect. The line must stay as long as they.
/// Costs nothing; see declare_replicas. Throws UsageError if the same line was said to
/// have another kind.
void replicate_over(Communicator& line, const std::vector<Parameter*>& parameters,
                    Placement::Kind kind, SourceLine at = SourceLine::here());
/// Says so of all of a model whose replicas have micro-batches, or tokens, of their own:
/// each rank's gradients are terms of the batch's.
void declare_replicas_of(Communicator& replicas, Module& model,
                         SourceLine at = SourceLine::here());
/// Does so for the ranks of all those axes: as one group for parameters that all of them
/// hold, and axis by axis for those that some axes share out, along the others.
///
///     declare_replicas_of(mesh, {"dp", "ep"}, *gpt);
///
/// makes an expert's gradient the sum over the line of "dp", and all others' the sum over
/// the plane of "dp" and "ep". Throws UsageError if a parameter is shared out along what
/// is neither a line nor a plane of the mesh, and if ranks along one of the axes hold it
/// alike for another reason, as all of a tensor group do.
void declare_replicas_of(Mesh& mesh, const std::vector<std::string>& axes, Module& model,
                         SourceLine at = SourceLine::here());

/// Returns whether each rank of the line has terms of the gradient of its own.
bool is_partial_along(const Communicator& line, const Parameter& parameter);

/// Returns whether this rank's gradient has its own terms only, of a sum over ranks that
/// it shares the parameter with.
bool is_partial(const Parameter& parameter);

/// After the last backward of a step, once: adds up each gradient over the ranks that
/// have terms of it, along one axis after the other. 2(n-1)/n of its bytes an axis of n
/// ranks. A strategy that has a way of its own along one line leaves that out: `except`.
/// Throws UsageError for a gradient that has been added up since it was set to zero.
void complete_gradients(const std::vector<Parameter*>& parameters,
                        const Communicator* except = nullptr,
                        SourceLine at = SourceLine::here());

/// Returns the parameters in groups: all of a group are alike along the same lines,
/// `except` aside. Ranks that hold one of them alike hold all of its group so, whatever
/// other parameters they have, as the two ends of a pipeline do with tied tables.
std::vector<std::vector<Parameter*>> placed_alike(
    const std::vector<Parameter*>& parameters, const Communicator& except);

/// Throws UsageError, which begins with `who`, unless all of them are partial along the
/// line: a strategy that reduces over it has to know that they are, and so have norms.
void require_partial(const char* who, const Communicator& line,
                     const std::vector<Parameter*>& parameters);

/// Throws UsageError, which begins with `who`, if a strategy that shares parameters out
/// along the line has no shard for this rank; or if shards live on the host and have
/// terms along another line, too, which are added up on devices.
void require_shards(const char* who, const Communicator& line,
                    const std::vector<Parameter*>& shards, bool on_host);

/// The sum of squares of all gradients of a model: (1), the same on every rank. `ranks`
/// are all that hold the model, with all of its replicas: the mesh's world. Each calls it
/// with its own parameters; one that several ranks hold alike counts once. One all-reduce
/// of one number. Throws UsageError for a gradient that is partial and has not been added
/// up, or if `ranks` are too few to hold all copies and shards of a parameter.
Tensor squared_gradient_norm(Device& device, Communicator& ranks,
                             const std::vector<Parameter*>& parameters,
                             SourceLine at = SourceLine::here());

/// Scales all gradients so that their norm is `most`, if it was larger (Pascanu et al.
/// 2013, 1211.5063, section 3.2), as PyTorch's clip_grad_norm_ does, without a trip to
/// the host. Gives the norm's square before, (1). Called and refused as
/// squared_gradient_norm is.
Tensor clip_gradients(Device& device, Communicator& ranks,
                      const std::vector<Parameter*>& parameters, double most,
                      SourceLine at = SourceLine::here());

}  // namespace lockstep
