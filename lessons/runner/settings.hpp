#pragma once

#include <vector>

#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// The settings that every lesson understands, since make_cluster does.
const std::vector<Setting>& common_settings();

/// Throws UsageError for a setting that neither every lesson nor this one understands,
/// and for
/// --text or --data where the lesson takes none.
void require_understood(const LessonOptions& options, const LessonEntry& lesson);

}  // namespace lockstep::lessons
