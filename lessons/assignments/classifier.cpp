#include "lessons/assignments/classifier.hpp"

#include <fmt/format.h>

namespace lockstep::lessons {

ClassifiedRows draw_rows(const Judge& judge, const std::string& name, std::int64_t rows,
                         std::int64_t features, std::int64_t classes) {
    HostTensor targets({rows}, DType::i32);
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::string target = fmt::format("{}, row {}", name, row);
        targets.set(row, static_cast<double>(judge.draw(target, 0, classes - 1)));
    }
    return {judge.normal(name, {rows, features}), targets};
}

}  // namespace lockstep::lessons
