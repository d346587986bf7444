// How findings draw schedules and services. The first lesson has neither, and is built
// without this file.

#include <memory>
#include <utility>

#include "lessons/page/findings.hpp"
#include "src/inference/service_picture.hpp"
#include "src/pipeline/picture.hpp"

namespace lockstep::lessons {

void Findings::picture(const std::string& name, const Schedule& schedule,
                       const Timing& timing, SourceLine at) {
    const auto kept =
        std::make_shared<const std::pair<Schedule, Timing>>(schedule, timing);
    draw(
        name,
        [kept](const std::string& title) {
            SchedulePicture picture;
            picture.title = title;
            return schedule_chart(kept->first, kept->second, picture);
        },
        at);
}

void Findings::service(const std::string& name, ServiceTrace trace, SourceLine at) {
    draw(
        name,
        [kept = std::move(trace)](const std::string& title) {
            ServiceTrace titled = kept;
            titled.title = title;
            return service_chart(std::move(titled));
        },
        at);
}

}  // namespace lockstep::lessons
