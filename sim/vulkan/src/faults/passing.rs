//! Functions that are counted, may be made to fail, and are passed on as they are.

/// Defines such functions: `name = "vkName"(type) of TABLE else RESULT => path.to.the.next.function;` where `RESULT` is
/// returned for a handle that is not known.
macro_rules! passed_on {
    ($($name:ident = $vulkan:literal(
        $handle:ident: $of:ty $(, $argument:ident: $type:ty)*
    ) of $table:ident else $lost:ident => |$kept:ident| $next:expr;)+) => {
        $(pub(super) unsafe extern "system" fn $name($handle: $of $(, $argument: $type)*) -> ash::vk::Result {
            // SAFETY: a live handle of the caller's.
            let Some($kept) = (unsafe { $table.get($handle) }) else { return ash::vk::Result::$lost };
            if let Err(result) = $kept.identity.enter($vulkan) {
                return result;
            }
            let next = $next;
            // SAFETY: the caller's arguments, passed on.
            unsafe { next($handle $(, $argument)*) }
        })+
    };
}
pub(super) use passed_on;
