#pragma once

#include <string>
#include <vector>

#include "src/comm/mesh.hpp"
#include "src/nn/module.hpp"

namespace lockstep {

// Parameters of a model are placed on a mesh. Their placements decide which gradients are
// summed over which ranks, and which parameters count only once in a norm.

/// Declares that all ranks of `line` hold copies of these parameters, and must update
/// them in the same way. Each rank of the line calls this; a second call has no effect.
/// The line must outlive the parameters. Costs nothing; see declare_replicas. Throws
/// UsageError if a parameter was declared with another kind along this line.
void replicate_over(Communicator& line, const std::vector<Parameter*>& parameters,
                    Placement::Kind kind, SourceLine at = SourceLine::here());
/// Declares copies of all parameters of a model. The replicas have different
/// micro-batches or tokens, so each rank's gradients are terms of the batch's gradients.
void declare_replicas_of(Communicator& replicas, Module& model,
                         SourceLine at = SourceLine::here());
/// Declares copies on the ranks along all these axes. If all these ranks hold a
/// parameter, it is declared on one group of all of them. A parameter that is sharded
/// along some of the axes is declared on a line along each of the other axes.
///
///     declare_replicas_of(mesh, {"dp", "ep"}, *gpt);
///
/// This makes an expert's gradient the sum over the line of "dp", and every other
/// gradient the sum over the plane of "dp" and "ep". Throws UsageError if a parameter is
/// sharded along something that is neither a line nor a plane of the mesh. Also throws if
/// ranks along one of the axes hold copies for another reason, as all ranks of a tensor
/// group do.
void declare_replicas_of(Mesh& mesh, const std::vector<std::string>& axes, Module& model,
                         SourceLine at = SourceLine::here());

/// Returns whether each rank of the line has its own terms of the gradient.
bool is_partial_along(const Communicator& line, const Parameter& parameter);

/// Returns whether this rank's gradient has only its own terms of a sum over ranks.
bool is_partial(const Parameter& parameter);

/// Sums each gradient over the ranks that have terms of it, along one axis after another.
/// Call it once, after the last backward of a step. Sends 2(n-1)/n of a gradient's bytes
/// per axis of n ranks. Leaves out `except`, a line along which a strategy sums in its
/// own way. Throws UsageError if a gradient was already summed since it was set to zero.
void complete_gradients(const std::vector<Parameter*>& parameters,
                        const Communicator* except = nullptr,
                        SourceLine at = SourceLine::here());

/// Returns the parameters in groups. All parameters of a group have copies along the same
/// lines, apart from `except`. So a rank that has a copy of one parameter has copies of
/// all parameters in that group, but perhaps not of other groups. Tied tables at both
/// ends of a pipeline need this.
std::vector<std::vector<Parameter*>> placed_alike(
    const std::vector<Parameter*>& parameters, const Communicator& except);

/// Throws a UsageError that begins with `who` unless all parameters are partial along the
/// line. Strategies that reduce over the line, and gradient norms, rely on this.
void require_partial(const char* who, const Communicator& line,
                     const std::vector<Parameter*>& parameters);

/// Throws a UsageError that begins with `who` if sharding along the line gives this rank
/// no shard. Also throws if shards on the host have terms along another line, because
/// such terms are summed on devices only.
void require_shards(const char* who, const Communicator& line,
                    const std::vector<Parameter*>& shards, bool on_host);

/// Returns the sum of squares of all gradients of a model: (1), the same on every rank.
/// `ranks` are all ranks that hold the model, including all replicas: the mesh's world.
/// Each rank calls this with its own parameters; a parameter with copies counts once.
/// Costs one all-reduce of one number. Throws UsageError if a gradient is partial and was
/// not summed, or if `ranks` are too few to hold all copies and shards of a parameter.
Tensor squared_gradient_norm(Device& device, Communicator& ranks,
                             const std::vector<Parameter*>& parameters,
                             SourceLine at = SourceLine::here());

/// If the norm of all gradients is larger than `most`, scales the gradients so that their
/// norm is `most` (Pascanu et al. 2013, 1211.5063, section 3.2). Does the same as
/// PyTorch's clip_grad_norm_, without a copy to the host. Returns the square of the norm
/// before scaling, (1). `ranks` and errors are as in squared_gradient_norm.
Tensor clip_gradients(Device& device, Communicator& ranks,
                      const std::vector<Parameter*>& parameters, double most,
                      SourceLine at = SourceLine::here());

}  // namespace lockstep
