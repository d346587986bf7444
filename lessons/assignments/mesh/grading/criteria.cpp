#include <functional>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/mesh/grading/choice.hpp"
#include "lessons/assignments/mesh/grading/training.hpp"

namespace lockstep::lessons {

namespace {

using namespace mesh;

std::vector<Criterion> criteria_of_training() {
    const auto criterion = [](const char* id, const char* title, int points,
                              void (*judged)(Judge&)) {
        return Criterion{id, title, points, "mesh", judged};
    };
    return {
        criterion("a11.1-loss", "every rank has the loss of the batch", 10, judge_loss),
        criterion("a11.1-gradients", "a step changes each part by its gradient", 15,
                  judge_gradients),
        criterion("a11.1-norm", "the norm counts each number of the model once", 10,
                  judge_norm),
        criterion("a11.1-steps", "clipped steps end with one device's weights", 10,
                  judge_steps),
        criterion("a11.1-share", "a device computes and sends its share", 8, judge_share),
        criterion("a11.1-state", "the optimizer's state is kept once", 8, judge_state)};
}

void add_criteria_of_choice(std::vector<Criterion>& criteria, Kind kind,
                            const std::string& what) {
    const std::string fits = fmt::format("a11.2-{}-fits", name_of(kind));
    const auto add = [&](const std::string& id, const std::string& title, int points,
                         const std::function<void(Judge&)>& judged) {
        criteria.push_back(
            {id, fmt::format("{}: {}", what, title), points, "mesh", judged});
    };
    add(fits, "no device holds more than it has", 5,
        [=](Judge& judge) { judge_fits(judge, kind); });
    constexpr int kNear = 60, kBest = 25;
    const auto judge_near = [=](Judge& judge) {
        needs(judge, fits, [&](Judge& asking) { judge_fits(asking, kind); });
        judge_time(judge, kind, kNear);
    };
    const std::string near = fmt::format("a11.2-{}-near", name_of(kind));
    add(near, "a step within 60 % of the best mesh's", 4, judge_near);
    add(fmt::format("a11.2-{}-best", name_of(kind)),
        "a step within 25 % of the best mesh's", 4, [=](Judge& judge) {
            needs(judge, near, judge_near);
            judge_time(judge, kind, kBest);
        });
}

std::vector<Criterion> mesh_criteria() {
    std::vector<Criterion> criteria = criteria_of_training();
    add_criteria_of_choice(criteria, Kind::wide, "a model too wide for replicas");
    add_criteria_of_choice(criteria, Kind::nodes,
                           "nodes with a slow network between them");
    add_criteria_of_choice(criteria, Kind::context, "sequences too long for a device");
    return criteria;
}

}  // namespace

Assignment mesh_assignment() {
    return {"mesh",
            "A mesh",
            "The program of one device of a mesh of data, context and tensor "
            "parallelism, and the mesh to choose for a model and a cluster.",
            {"mesh.hpp", "train.cpp", "choose.cpp", "adapters.cpp"},
            mesh_criteria(),
            mesh_solutions};
}

}  // namespace lockstep::lessons
