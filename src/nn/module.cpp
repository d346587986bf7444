#include "src/nn/module.hpp"

#include <cstring>

#include <fmt/format.h>

#include "src/core/call_scope.hpp"
#include "src/core/require.hpp"

namespace lockstep {

const std::any* Saved::find(const char* name) const {
    for (const Kept& kept : values_)
        if (std::strcmp(kept.name, name) == 0) return &kept.value;
    return nullptr;
}

Saved::Kept* Saved::find_kept(const char* name) {
    for (Kept& kept : values_)
        if (std::strcmp(kept.name, name) == 0) return &kept;
    return nullptr;
}

void Saved::require_free(const char* name) const {
    require(find(name) == nullptr,
            "this Saved already has \"{}\" of another forward: give each micro-batch its "
            "own Saved, or call clear() if there is no backward",
            name);
}

void Saved::refuse(const char* name) const {
    require(find(name) == nullptr,
            "backward asks for \"{}\" with another type than forward kept", name);
    throw UsageError(fmt::format(
        "backward needs \"{}\", which this Saved does not hold: each backward "
        "follows one forward with the same Saved",
        name));
}

void Saved::drop(const char* name) {
    std::erase_if(values_,
                  [&](const Kept& kept) { return std::strcmp(kept.name, name) == 0; });
}

void Saved::clear() {
    values_.clear();
    if (own_root_) own_root_->losses.clear();
    for (const auto& child : children_)
        child->clear();
}

void Saved::clear_to_repeat() {
    std::erase_if(values_, [](const Kept& kept) { return !kept.is_state; });
    for (Kept& kept : values_)
        kept.is_of_first = true;
    for (const auto& child : children_)
        child->clear_to_repeat();
}

void Saved::each_tensor(FunctionRef<void(Tensor&)> visit) {
    for (Kept& kept : values_)
        if (auto* tensor = std::any_cast<Tensor>(&kept.value)) visit(*tensor);
    for (const auto& child : children_)
        child->each_tensor(visit);
}

Saved& Saved::child(std::size_t index) {
    while (children_.size() <= index) {
        children_.push_back(std::make_unique<Saved>());
        children_.back()->root_ = &root();
    }
    return *children_[index];
}

Saved::Root& Saved::root() {
    if (root_ == nullptr) {
        own_root_ = std::make_unique<Root>();
        root_ = own_root_.get();
    }
    return *root_;
}

namespace {

/// Throws if a strategy has released a tensor that the module is about to read or add to.
void require_present(const Parameter& parameter, Use use, SourceLine at) {
    constexpr const char* kNames[] = {"forward", "backward", "backward_input",
                                      "backward_weight"};
    const bool value = parameter.value || !reads_value(use);
    const bool gradient = parameter.gradient || !adds_gradient(use);
    require(value && gradient, at,
            "{} needs the {} of {}, which is absent: a strategy that releases it must "
            "bring it back in on_use; a model that only infers has no gradients",
            kNames[static_cast<int>(use)], value ? "gradient" : "value",
            parameter.name());
}

struct ParameterUse {
    Parameter* parameter;
    Use use;
};

/// Runs `work` between begin_use and end_use of the parameters. If `work` throws, the run
/// is over, so end_use's hooks, which may communicate, do not run.
template <typename Work>
auto between(const std::vector<ParameterUse>& uses, SourceLine at, Work&& work) {
    for (const auto& [parameter, use] : uses) {
        parameter->begin_use(use);
        require_present(*parameter, use, at);
    }
    auto result = work();
    for (const auto& [parameter, use] : uses)
        parameter->end_use(use);
    return result;
}

void require_gradient(const Tensor& dy, SourceLine at) {
    require(static_cast<bool>(dy), at,
            "backward was given no gradient: the module after this one computes none "
            "for its input (an Embedding, or set_input_gradient(false))");
}

}  // namespace

template <typename Work>
auto Module::using_parameters(Use use, SourceLine at, Work&& work) {
    std::vector<ParameterUse> uses;
    for (Parameter* parameter : own_parameters()) {
        const bool reads =
            use == Use::forward || (input_gradient() && reads_in_backward(*parameter));
        if (reads)
            uses.push_back({parameter, use});
        else if (adds_gradient(use))
            uses.push_back({parameter, Use::backward_weight});
    }
    return between(uses, at, std::forward<Work>(work));
}

Tensor Module::forward(const Tensor& x, Saved& saved, SourceLine at) {
    const CallScope call(at);
    saved.set_line(at);
    return using_parameters(Use::forward, saved.line(),
                            [&] { return do_forward(x, saved); });
}

Tensor Module::infer(const Tensor& x, SourceLine at) {
    const CallScope call(at);
    return using_parameters(Use::forward, at, [&] { return do_infer(x, at); });
}

Tensor Module::do_infer(const Tensor& x, SourceLine at) {
    Saved saved;
    saved.set_line(at);
    return do_forward(x, saved);
}

Tensor Module::backward_input(const Tensor& dy, Saved& saved, SourceLine at) {
    const CallScope call(at);
    saved.set_line(at);
    require_gradient(dy, saved.line());
    return using_parameters(Use::backward_input, saved.line(),
                            [&] { return do_backward_input(dy, saved); });
}

void Module::backward_weight(Saved& saved, SourceLine at) {
    const CallScope call(at);
    saved.set_line(at);
    using_parameters(Use::backward_weight, saved.line(), [&] {
        do_backward_weight(saved);
        saved.clear();
        return true;
    });
}

Tensor Module::backward(const Tensor& dy, Saved& saved, SourceLine at) {
    const CallScope call(at);
    saved.set_line(at);
    require_gradient(dy, saved.line());
    return using_parameters(Use::backward, saved.line(), [&] {
        Tensor dx = do_backward(dy, saved);
        saved.clear();
        return dx;
    });
}

Tensor Module::do_backward(const Tensor& dy, Saved& saved) {
    Tensor dx = do_backward_input(dy, saved);
    do_backward_weight(saved);
    return dx;
}

void zero_gradients(Module& module, int passes) {
    for (Parameter* parameter : module.parameters())
        parameter->zero_gradient(passes);
}

}  // namespace lockstep
