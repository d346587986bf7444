// F13: two fully sharded towers. In one step the batch of rank 1 has no image, and rank 1
// leaves out the tower that sees. The other ranks wait for its shards
// (huggingface/transformers#37186, pytorch/torchtitan#4777).
//
// finds: F13
// check: cheap
// ranks: 4, 5, 256
// parties: 1 | rest
// says: left out the call at tests/faults/F13_text_without_an_image.cpp:33

#include "src/comm/rank.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/fully_sharded.hpp"
#include "src/parallel/placement.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Sequential vision, trunk;
    vision.add<Linear>(ParameterInit{device, DType::f64, 7, "vision"}, 6, 8);
    trunk.add<Linear>(ParameterInit{device, DType::f64, 8, "trunk"}, 8, 8);
    declare_replicas_of(rank.world(), vision);
    declare_replicas_of(rank.world(), trunk);
    FullySharded see(device, rank.world(), vision), think(device, rank.world(), trunk);
    Sgd optimizer_of_see(see.shards()), optimizer_of_think(think.shards());
    for (int step = 0; step < 3; ++step) {
        const bool has_image = rank.index() != 1 || step != 1;  // twin: const bool has_image = true;
        see.begin(), think.begin();
        Saved s, t;
        Tensor x = device.zeros({2, 8}, DType::f64);
        if (has_image)
            x = vision.forward(device.zeros({2, 6}, DType::f64), s);  // line: vision
        const Tensor y = trunk.forward(x, t);  // line: trunk
        const Tensor dx = trunk.backward(mean_squared_error(device, y, x, 1.0 / rank.size()).gradient, t);
        if (has_image) vision.backward(dx, s);
        think.finish(), see.finish();
        think.update(optimizer_of_think), see.update(optimizer_of_see);
    }
}
