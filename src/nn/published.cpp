#include "src/nn/published.hpp"

#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/nn/part.hpp"

namespace lockstep {

namespace {

using Tensors = std::map<std::string, HostTensor>;

/// The published tensors that make up one parameter. Their rows are joined in this order,
/// one tensor below another.
struct Source {
    std::vector<std::string> names;
    bool transposed = false;
};

/// Returns "3" and "attn.c_attn.weight" for "transformer.h.3.attn.c_attn.weight".
std::optional<std::pair<std::string, std::string>> block_of(const std::string& name) {
    const std::string body = "transformer.h.";
    if (!name.starts_with(body)) return std::nullopt;
    const std::size_t dot = name.find('.', body.size());
    return std::pair(name.substr(body.size(), dot - body.size()), name.substr(dot + 1));
}

Source in_gpt2(const std::string& name, const Tensors& tensors) {
    const std::string body = "transformer.";
    const bool linear = name.find(".c_") != std::string::npos && name.ends_with("weight");
    const bool prefixed = tensors.contains(name) || !name.starts_with(body);
    return {{prefixed ? name : name.substr(body.size())}, linear};
}

Source in_llama(const std::string& name) {
    static const std::map<std::string, std::string> ends = {
        {"transformer.wte.weight", "model.embed_tokens.weight"},
        {"transformer.ln_f.weight", "model.norm.weight"},
        {"lm_head.weight", "lm_head.weight"}};
    static const std::map<std::string, std::vector<std::string>> within = {
        {"ln_1.weight", {"input_layernorm"}},
        {"ln_2.weight", {"post_attention_layernorm"}},
        {"attn.c_attn.weight",
         {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
        {"attn.c_proj.weight", {"self_attn.o_proj"}},
        {"mlp.gate_up_proj.weight", {"mlp.gate_proj", "mlp.up_proj"}},
        {"mlp.down_proj.weight", {"mlp.down_proj"}}};
    if (const auto end = ends.find(name); end != ends.end()) return {{end->second}};
    const auto block = block_of(name);
    const auto parts = block ? within.find(block->second) : within.end();
    require(parts != within.end(), "{}: Llama has no such parameter", name);
    Source source;
    for (const std::string& part : parts->second)
        source.names.push_back(
            fmt::format("model.layers.{}.{}.weight", block->first, part));
    return source;
}

HostTensor transposed(const HostTensor& matrix) {
    const std::int64_t rows = matrix.shape().matrix_rows(),
                       columns = matrix.shape().columns();
    HostTensor turned({columns, rows}, matrix.dtype());
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j)
            turned.set(j * rows + i, matrix.at(i * columns + j));
    return turned;
}

/// Joins a parameter's published tensors into one whole tensor of the parameter's dtype.
HostTensor whole_of(const Parameter& parameter, const Source& source,
                    const Tensors& tensors) {
    const Shape& shape = parameter.part().whole;
    HostTensor whole(shape, parameter.dtype());
    std::int64_t at = 0;
    for (const std::string& name : source.names) {
        const auto found = tensors.find(name);
        require(found != tensors.end(),
                "{} is made of {}, which is not among the tensors", parameter.name(),
                name);
        const HostTensor tensor =
            source.transposed ? transposed(found->second) : found->second;
        const bool fits = tensor.shape().dimensions() == shape.dimensions() &&
                          tensor.shape().columns() == shape.columns() &&
                          at + tensor.elements() <= whole.elements();
        require(fits, "{} {} is made of {} {}, which does not fit", parameter.name(),
                shape, name, found->second.shape());
        for (std::int64_t i = 0; i < tensor.elements(); ++i)
            whole.set(at++, tensor.at(i));
    }
    require(at == whole.elements(), "{} {} has {} elements, but its published tensors {}",
            parameter.name(), shape, whole.elements(), at);
    return whole;
}

}  // namespace

void load_published(Module& gpt, const Tensors& tensors, Published layout) {
    for (const Parameter* parameter : gpt.parameters()) {
        const std::string& name = parameter->name();
        const Source source =
            layout == Published::gpt2 ? in_gpt2(name, tensors) : in_llama(name);
        const HostTensor shard =
            shard_of(whole_of(*parameter, source, tensors), parameter->part());
        require(static_cast<bool>(parameter->value),
                "{} cannot be loaded: its value is absent", name);
        Device& device = *parameter->value.device();
        device.copy(parameter->value, device.upload(shard));
    }
}

}  // namespace lockstep
