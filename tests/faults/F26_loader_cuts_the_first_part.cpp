// F26: a loader of weights cuts rank 0's part of a stacked weight out of the file on
// every rank (vllm-project/vllm-gguf-plugin#103).
//
// finds: F26
// check: full
// ranks: 2, 4
// parties: 0 | 1
// says: hold different parts of gate_up_proj.weight

#include "src/comm/rank.hpp"
#include "src/nn/gpt.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    TensorParallel tp(device, rank.world());
    const ParameterInit init{device, DType::f32, 7, ""};
    const auto mlp = make_swiglu_mlp(init, 8, 16, tensor_parallel({}, tp));
    std::vector<float> numbers(32 * 8);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    const HostTensor file = HostTensor::of({32, 8}, numbers);
    const int index = 0;  // twin: const int index = rank.index();
    const Parameter& gate_up = *mlp->parameters().front();
    const Part part = stacked_part({32, 8}, {16, 16}, rank.size(), index);
    device.upload_into(gate_up.value, shard_of(file, part));
    mlp->infer(device.zeros({4, 8}, DType::f32));
}
