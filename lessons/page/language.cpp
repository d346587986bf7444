#include "lessons/page/language.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

namespace lockstep::lessons {

namespace {

using Pair = std::pair<std::string_view, std::string_view>;

constexpr std::array kChinese{
    Pair{"Step {} of {}: {}", "第 {} 步（共 {} 步）：{}"},
    Pair{"Predict:", "预测："},
    Pair{"Right:", "正确："},
    Pair{"Not so:", "不对："},
    Pair{"Answer:", "答案："},
    Pair{"Your answer:", "你的回答："},
    Pair{"Your answer", "你的回答"},
    Pair{", in {}", "，单位 {}"},
    Pair{", a number from the list", "，选一个编号"},
    Pair{"Enter passes", "回车跳过"},
    Pair{"passed", "已跳过"},
    Pair{"Not yet.", "还不对。"},
    Pair{"Once more", "再试一次"},
    Pair{"Bits or bytes? A byte has 8 bits.", "是比特还是字节？一个字节有 8 个比特。"},
    Pair{"1 KiB is 1,024 bytes, 1 kB is 1,000.",
         "1 KiB 是 1,024 字节，1 kB 是 1,000 字节。"},
    Pair{"A number such as 1,500, 1.5e3, 1/4 or 25% is expected",
         "请输入一个数，例如 1,500、1.5e3、1/4 或 25%"},
    Pair{"A number from 1 to {} is expected", "请输入 1 到 {} 之间的编号"},
    Pair{"byte", "字节"},
    Pair{"bytes", "字节"},
    Pair{"ok", "通过"},
    Pair{"FAILED", "失败"},
    Pair{"And {} more checks, all true.", "另有 {} 项检查，全部成立。"},
    Pair{"And one more check, true as well.", "另有 1 项检查，也成立。"},
    Pair{"{}, but at most {} is allowed", "{}，而上限是 {}"},
    Pair{"{} instead of {}", "{}，应为 {}"},
    Pair{"(Not compared, as this run computes shapes only.)",
         "（未比较：这次运行只计算形状。）"},
    Pair{"About {} minutes.", "约 {} 分钟。"},
    Pair{"After: {}.", "先修：{}。"},
    Pair{"Assignment: {}.", "作业：{}。"},
    Pair{"Done.", "已完成。"},
    Pair{"You left it at step {}.", "上次停在第 {} 步。"},
    Pair{"What comes next", "接下来"},
    Pair{"The assignment {0} goes with this lesson: lockstep assignment new {0} DIR",
         "本课的作业是 {0}：lockstep assignment new {0} 目录"},
    Pair{"The next lesson is {0}: lockstep lesson {1}",
         "下一课：{0}：lockstep lesson {1}"},
    Pair{"This was the last lesson. lockstep lessons lists them all.",
         "这是最后一课。lockstep lessons 列出全部课程。"},
    Pair{"All {} checks passed.", "全部 {} 项检查通过。"},
    Pair{"All {} checks passed, with those of the steps before.",
         "全部 {} 项检查通过，包括前面各步的检查。"},
    Pair{"The check passed.", "检查通过。"},
    Pair{"{} of {} checks failed: {}.", "{1} 项检查中有 {0} 项失败：{2}。"},
    Pair{"The record of this run is in {}.", "本次运行的记录在 {}。"},
    Pair{
        "Predictions: {} of {} right at once, {} at the second try, {} wrong, {} passed.",
        "预测：{1} 题中一次答对 {0} 题，第二次答对 {2} 题，答错 {3} 题，跳过 {4} 题。"},
    Pair{"You left at step {} of {}. lockstep lesson {} goes on there; --from start "
         "begins "
         "anew.",
         "停在第 {} 步（共 {} 步）。lockstep lesson {} 从这里继续；--from start "
         "从头开始。"},
    Pair{"The record of what was done is in {}.", "已完成部分的记录在 {}。"},
    Pair{"{} goes on where you left it; --from start begins anew.",
         "{}：从上次停下的地方继续；--from start 从头开始。"},
    Pair{"more", "继续"},
    Pair{"next step", "下一步"},
    Pair{"end", "结束"},
    Pair{"back", "返回"},
    Pair{"all of it", "全部显示"},
    Pair{"quit", "退出"},
    Pair{"help", "帮助"},
};

// The words of pictures.
constexpr std::array kPictureWords{
    Pair{"operation", "操作"},
    Pair{"forward", "前向"},
    Pair{"backward", "反向"},
    Pair{"backward, inputs", "反向，输入"},
    Pair{"backward, weights", "反向，权重"},
    Pair{"update", "更新"},
    Pair{"another phase", "其他阶段"},
    Pair{"send and receive", "发送和接收"},
    Pair{"message sent", "发送消息"},
    Pair{"communication", "通信"},
    Pair{"copy between host and device", "主机与设备之间的复制"},
    Pair{"operation in a phase", "阶段中的操作"},
    Pair{"micro-batch", "微批次"},
    Pair{"0 1 2: micro-batches", "0 1 2：微批次"},
    Pair{"idle", "空闲"},
    Pair{"nothing", "无操作"},
    Pair{"busy", "忙碌"},
    Pair{"time", "时间"},
    Pair{"time in {}", "时间（{}）"},
    Pair{"peak", "峰值"},
    Pair{"; {} is {}", "；{} 表示 {}"},
    Pair{"held, in micro-batches", "保存的微批次数"},
    Pair{"held, in micro-batches of a chunk", "保存的微批次数（按分块计）"},
    Pair{"held for backward", "为反向保存"},
    Pair{"held between its halves", "在反向的两半之间保存"},
    Pair{"memory held", "保存的内存"},
    Pair{"memory", "内存"},
    Pair{"parameters", "参数"},
    Pair{"gradients", "梯度"},
    Pair{"optimizer", "优化器"},
    Pair{"activations", "激活值"},
    Pair{"workspace", "临时空间"},
    Pair{"chunk", "分块"},
    Pair{"device", "设备"},
    Pair{"devices", "设备"},
    Pair{"stage", "阶段"},
    Pair{"stages", "阶段"},
};

}  // namespace

Language language_of_locale(std::string_view locale) {
    return locale.starts_with("zh") ? Language::chinese : Language::english;
}

std::string said(Language language, std::string_view english) {
    if (language == Language::english) return std::string(english);
    const auto found = std::ranges::find(kChinese, english, &Pair::first);
    if (found == kChinese.end())
        throw std::logic_error("nobody has translated '" + std::string(english) + "'");
    return std::string(found->second);
}

std::string in_chinese(std::string_view english) {
    const auto find = [](std::string_view word) {
        return std::ranges::find(kPictureWords, word, &Pair::first);
    };
    if (const auto* found = find(english); found != kPictureWords.end())
        return std::string(found->second);
    // "chunk 0"
    const std::size_t space = english.rfind(' ');
    const std::string_view number = english.substr(std::min(space, english.size()));
    if (number.size() > 1 && number.find_first_not_of("0123456789", 1) == number.npos)
        if (const auto* found = find(english.substr(0, space));
            found != kPictureWords.end())
            return std::string(found->second) + std::string(number);
    return std::string(english);
}

}  // namespace lockstep::lessons
