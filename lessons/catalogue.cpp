#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

// Each lesson is defined in the lesson.cpp of its folder.
LessonEntry gradient_accumulation_lesson();
LessonEntry data_parallel_lesson();
LessonEntry column_linear_lesson();
LessonEntry tensor_parallel_block_lesson();
LessonEntry pipeline_1f1b_lesson();
LessonEntry pipedream_lesson();
LessonEntry ring_self_attention_lesson();
LessonEntry zero_lesson();
LessonEntry experts_lesson();
LessonEntry mesh_lesson();
LessonEntry inference_lesson();

const std::vector<LessonEntry>& catalogue() {
    static const std::vector<LessonEntry> lessons{
        gradient_accumulation_lesson(),
        data_parallel_lesson(),
        column_linear_lesson(),
        tensor_parallel_block_lesson(),
        pipeline_1f1b_lesson(),
        pipedream_lesson(),
        ring_self_attention_lesson(),
        zero_lesson(),
        experts_lesson(),
        mesh_lesson(),
        inference_lesson(),
    };
    return lessons;
}

}  // namespace lockstep::lessons
