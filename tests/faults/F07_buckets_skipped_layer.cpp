// F07: data parallelism with buckets, reduced in order as they fill. No flush ends a step.
// Rank 0's last batch has no pictures, so it skips the layer for pictures. On rank 0 this
// layer's bucket never fills, so the later buckets never start.
//
// finds: F07
// check: cheap
// ranks: 4, 256
// parties: 0 | rest

#include <set>

#include "src/comm/rank.hpp"
#include "src/nn/linear.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const ParameterInit init{device, DType::f32, 7, ""};
    Linear stem(init.child("stem"), 4, 4);
    Linear pictures(init.child("pictures"), 4, 4);
    Linear head(init.child("head"), 4, 2);
    const std::vector<Linear*> layers{&head, &pictures, &stem};  // in the order of backward
    std::vector<Parameter*> buckets;
    for (Linear* layer : layers)
        for (Parameter* parameter : layer->parameters())
            buckets.push_back(parameter);
    std::set<Parameter*> full;
    std::vector<Work> works;
    const auto reduce_next = [&] {
        works.push_back(rank.world().all_reduce(buckets[works.size()]->gradient));  // line: reduce
    };
    for (Parameter* bucket : buckets)
        bucket->on_gradient([&](Parameter& ready) {
            full.insert(&ready);
            while (works.size() < buckets.size() && full.contains(buckets[works.size()]))
                reduce_next();
        });
    for (int step = 0; step < 2; ++step) {
        for (Linear* layer : layers)
            zero_gradients(*layer);
        const Tensor x = device.zeros({2, 4}, DType::f32);
        device.fill(x, step + rank.index());
        const bool has_pictures = step == 0 || rank.index() > 0;
        Saved saved;
        const Tensor h = stem.forward(x, saved.child(0));
        if (has_pictures) device.add(h, pictures.forward(x, saved.child(1)));
        const Tensor dh = head.backward(head.forward(h, saved.child(2)), saved.child(2));
        if (has_pictures) pictures.backward(dh, saved.child(1));
        stem.backward(dh, saved.child(0));
        // twin: while (works.size() < buckets.size()) reduce_next();
        for (Work& work : works)
            work.wait();
        works.clear();
        full.clear();
        for (Parameter* bucket : buckets)
            device.sgd(bucket->value, bucket->gradient, Tensor(), {});
    }
}
