#include "lessons/01_gradient_accumulation/lesson.hpp"
#include "lessons/02_data_parallel/lesson.hpp"
#include "lessons/03_column_linear/lesson.hpp"
#include "lessons/04_tensor_parallel_block/lesson.hpp"
#include "lessons/05_pipeline_1f1b/lesson.hpp"
#include "lessons/06_pipedream/lesson.hpp"
#include "lessons/07_ring_self_attention/lesson.hpp"
#include "lessons/08_zero/lesson.hpp"
#include "lessons/09_experts/lesson.hpp"
#include "lessons/10_mesh/lesson.hpp"
#include "lessons/11_inference/lesson.hpp"
#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

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
