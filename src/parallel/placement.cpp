#include "src/parallel/placement.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "src/comm/expect.hpp"
#include "src/core/require.hpp"

namespace lockstep {

namespace {

const Placement* find(const Parameter& parameter, const Communicator& line) {
    for (const Placement& placement : parameter.placements)
        if (placement.line == &line) return &placement;
    return nullptr;
}

/// Returns what a placement means for the ranks of its line, in words.
const char* text_of(Placement::Kind kind) {
    switch (kind) {
        case Placement::Kind::sharded:
        case Placement::Kind::sharded_sum:
            return "have different parts of it";
        case Placement::Kind::replicated:
            return "hold copies of it, and each gets the whole gradient";
        case Placement::Kind::partial:
            return "hold copies of it, and each gets some terms of the gradient";
    }
    return "";
}

/// "it was declared at model.cpp:12 that the ranks of tp hold copies of it, …".
std::string text_of(const Placement& placement) {
    return fmt::format("it was declared {}that the ranks of {} {}",
                       placement.at.line == 0 ? "" : "at " + placement.at.text() + " ",
                       placement.line->name(), text_of(placement.kind));
}

}  // namespace

void replicate_over(Communicator& line, const std::vector<Parameter*>& parameters,
                    Placement::Kind kind, SourceLine at) {
    for (Parameter* parameter : parameters) {
        if (const Placement* known = find(*parameter, line)) {
            require(known->kind == kind, at, [&] {
                return fmt::format(
                    "{}: this call declares that the ranks of {} {}, but {}; did you "
                    "mean these ranks?",
                    parameter->name(), line.name(), text_of(kind), text_of(*known));
            });
            continue;
        }
        parameter->placements.push_back({&line, kind, at});
        if (parameter->value)
            declare_replicas(line, parameter->value, parameter->name(), at);
    }
}

namespace {

void declare_buffers(Communicator& replicas, Module& model, SourceLine at) {
    for (const Buffer& buffer : model.buffers())
        if (buffer.alike) declare_replicas(replicas, buffer.tensor, buffer.name, at);
}

}  // namespace

void declare_replicas_of(Communicator& replicas, Module& model, SourceLine at) {
    replicate_over(replicas, model.parameters(), Placement::Kind::partial, at);
    declare_buffers(replicas, model, at);
}

namespace {

/// Returns the axes along which all ranks have the same share of the parameter.
std::vector<std::string> axes_of_copies(const Mesh& mesh, const Parameter& parameter,
                                        const std::vector<std::string>& axes,
                                        SourceLine at) {
    std::vector<std::string> copies = axes;
    for (const Placement& placement : parameter.placements) {
        if (!placement.is_sharded()) continue;
        const auto spans = [&](const Mesh::Axis& axis) {
            return mesh.spans(*placement.line, axis.name);
        };
        require(std::ranges::any_of(mesh.axes(), spans), at,
                "{} is sharded along {}, which is neither a line nor a plane of this "
                "mesh; pass the mesh of all ranks",
                parameter.name(), placement.line->name());
        std::erase_if(copies, [&](const std::string& axis) {
            return mesh.spans(*placement.line, axis);
        });
    }
    return copies;
}

/// Throws if ranks along these axes hold copies for another reason. Each of these ranks
/// then already gets the whole gradient, and a sum would count it several times.
void require_alike_once(const Mesh& mesh, const Parameter& parameter,
                        const std::vector<std::string>& axes,
                        const std::vector<Communicator*>& lines, SourceLine at) {
    for (const Placement& placement : parameter.placements) {
        if (placement.is_sharded() || std::ranges::count(lines, placement.line)) continue;
        for (const std::string& axis : axes)
            require(mesh.size(axis) == 1 || !mesh.spans(*placement.line, axis), at, [&] {
                return fmt::format(
                    "the gradients of {} cannot be summed along {}: {}. Name only axes "
                    "whose ranks have different micro-batches or tokens",
                    parameter.name(), axis, text_of(placement));
            });
    }
}

}  // namespace

void declare_replicas_of(Mesh& mesh, const std::vector<std::string>& axes, Module& model,
                         SourceLine at) {
    Communicator& all = mesh.plane(axes, at);
    for (Parameter* parameter : model.parameters()) {
        const auto copies = axes_of_copies(mesh, *parameter, axes, at);
        std::vector<Communicator*> lines;
        if (copies.size() == axes.size())
            lines.push_back(&all);
        else
            for (const std::string& axis : copies)
                lines.push_back(&mesh[axis]);
        require_alike_once(mesh, *parameter, copies, lines, at);
        for (Communicator* line : lines)
            replicate_over(*line, {parameter}, Placement::Kind::partial, at);
    }
    declare_buffers(all, model, at);
}

bool is_partial_along(const Communicator& line, const Parameter& parameter) {
    const Placement* known = find(parameter, line);
    return known && known->kind == Placement::Kind::partial;
}

bool is_partial(const Parameter& parameter) {
    return std::any_of(parameter.placements.begin(), parameter.placements.end(),
                       [](const Placement& placement) { return placement.has_terms(); });
}

namespace {

void require_gradient(const Parameter& parameter, SourceLine at) {
    require(static_cast<bool>(parameter.gradient), at,
            "the gradient of {} is absent: a strategy that releases it must bring it "
            "back before it is summed or its norm is taken",
            parameter.name());
}

}  // namespace

// lesson: complete-gradients
void complete_gradients(const std::vector<Parameter*>& parameters,
                        const Communicator* except, SourceLine at) {
    for (Parameter* parameter : parameters) {
        require(!parameter->complete || !is_partial(*parameter), at,
                "the gradient of {} has already been summed since it was set to zero; a "
                "second sum would count every rank's terms again",
                parameter->name());
        require_gradient(*parameter, at);
        bool complete = true;
        for (const Placement& placement : parameter->placements) {
            if (!placement.has_terms() || placement.line->size() == 1) continue;
            if (placement.line == except || placement.is_sharded())
                complete = false;
            else
                placement.line->all_reduce(parameter->gradient, Reduction::sum, at)
                    .wait(at);
        }
        parameter->complete = complete;
    }
}
// lesson: end

std::vector<std::vector<Parameter*>> placed_alike(
    const std::vector<Parameter*>& parameters, const Communicator& except) {
    const auto lines_of = [&](const Parameter& parameter) {
        std::set<const Communicator*> lines;
        for (const Placement& placement : parameter.placements)
            if (!placement.is_sharded() && placement.line != &except)
                lines.insert(placement.line);
        return lines;
    };
    std::vector<std::vector<Parameter*>> groups;
    for (Parameter* parameter : parameters) {
        const auto group = std::ranges::find_if(groups, [&](const auto& known) {
            return lines_of(*known.front()) == lines_of(*parameter);
        });
        if (group == groups.end())
            groups.push_back({parameter});
        else
            group->push_back(parameter);
    }
    return groups;
}

void require_partial(const char* who, const Communicator& line,
                     const std::vector<Parameter*>& parameters) {
    if (line.size() == 1) return;
    for (const Parameter* parameter : parameters) {
        require(is_partial_along(line, *parameter),
                "{}: {} is not known to be partial along {}; first call "
                "declare_replicas_of() with this communicator",
                who, parameter->name(), line.name());
    }
}

void require_shards(const char* who, const Communicator& line,
                    const std::vector<Parameter*>& shards, bool on_host) {
    require(
        !shards.empty(),
        "{}: the parameters have too few elements for {} ranks: rank {} of {} gets none",
        who, line.size(), line.rank(), line.name());
    if (!on_host) return;
    for (const Parameter* shard : shards)
        require(std::ranges::count_if(shard->placements,
                                      [](const Placement& placement) {
                                          return placement.has_terms() &&
                                                 placement.line->size() > 1;
                                      }) <= 1,
                "{}: {} is also partial along another line than {}; its gradient would "
                "have to be summed on the host",
                who, shard->name(), line.name());
}

namespace {

/// Returns a copy of the tensor on `place`: the tensor's host, or the device of a host.
Tensor moved_to(Device& place, const Tensor& tensor, SourceLine at) {
    Tensor there = place.empty(tensor.shape(), tensor.dtype(), at);
    Device& from = *tensor.device();
    (&from.host(at) == &place ? from : place).start_copy(there, tensor, at).wait(at);
    return there;
}

/// All copies and shards of a parameter must lie on different ranks.
void require_room(const Parameter& parameter, const Communicator& ranks, SourceLine at) {
    std::int64_t held = 1;
    for (const Placement& placement : parameter.placements)
        held *= placement.line->size();
    require(held <= ranks.size(), at,
            "the gradient norm is taken over the {} ranks of {}, but {} is on {} ranks; "
            "pass all ranks that hold the model, including all replicas",
            ranks.size(), ranks.name(), parameter.name(), held);
}

}  // namespace

Tensor squared_gradient_norm(Device& device, Communicator& ranks,
                             const std::vector<Parameter*>& parameters, SourceLine at) {
    require(!parameters.empty(), at, "a gradient norm needs at least one parameter");
    const DType dtype = computed_in(parameters.front()->dtype());
    Tensor squares = device.zeros({1}, dtype, at);
    Tensor on_host;  // for shards that live on the host
    for (const Parameter* parameter : parameters) {
        require_gradient(*parameter, at);
        require(parameter->complete || !is_partial(*parameter), at,
                "the gradient of {} has only this rank's terms: sum it over the ranks "
                "that hold the parameter (complete_gradients) before you take its norm. "
                "If a strategy shards gradients, as Zero1 does, use its shards after "
                "finish(), or after update() if the update is delayed",
                parameter->name());
        require_room(*parameter, ranks, at);
        const bool counts_here =
            std::all_of(parameter->placements.begin(), parameter->placements.end(),
                        [](const Placement& placement) {
                            return placement.is_sharded() || placement.line->rank() == 0;
                        });
        if (!counts_here) continue;
        Device& place = *parameter->gradient.device();
        if (&place != &device && !on_host) on_host = place.zeros({1}, dtype, at);
        place.sum_of_squares(&place == &device ? squares : on_host, parameter->gradient,
                             at);
    }
    if (on_host) device.add(squares, moved_to(device, on_host, at), 1, at);
    ranks.all_reduce(squares, Reduction::sum, at).wait(at);
    return squares;
}

Tensor clip_gradients(Device& device, Communicator& ranks,
                      const std::vector<Parameter*>& parameters, double most,
                      SourceLine at) {
    Tensor squares = squared_gradient_norm(device, ranks, parameters, at);
    const Tensor factor = device.empty({1}, squares.dtype(), at);
    device.clip_factor(factor, squares, most, at);
    Tensor on_host;
    for (const Parameter* parameter : parameters) {
        Device& place = *parameter->gradient.device();
        if (&place != &device && !on_host) on_host = moved_to(place, factor, at);
        place.scale(parameter->gradient, &place == &device ? factor : on_host, at);
    }
    return squares;
}

}  // namespace lockstep
