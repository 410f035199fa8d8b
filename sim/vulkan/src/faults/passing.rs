//! Functions that are counted, may be made to fail, and are passed on as they are; and the life of counted objects.

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

/// Defines the creation and the destruction of objects that the ledger counts: `create = "vkCreate", destroy = "vkDestroy" of
/// Noun: HandleType, CreateInfoType, TABLE;`, with the names of the next layer's functions and the table of devices.
macro_rules! counted {
    ($($create:ident = $created:literal, $destroy:ident = $destroyed:literal of $noun:ident: $object:ty, $info:ty, $table:ident;)+) => {
        $(
            pub(super) unsafe extern "system" fn $create(
                device: ash::vk::Device,
                info: *const $info,
                allocator: *const ash::vk::AllocationCallbacks<'_>,
                object: *mut $object,
            ) -> ash::vk::Result {
                // SAFETY: a live device of the caller's.
                let Some(kept) = (unsafe { $table.get(device) }) else {
                    return ash::vk::Result::ERROR_DEVICE_LOST;
                };
                if let Err(result) = kept.identity.enter($created) {
                    return result;
                }
                // SAFETY: the caller's arguments, passed on.
                let result = unsafe { (kept.next.fp_v1_0().$create)(device, info, allocator, object) };
                if result == ash::vk::Result::SUCCESS {
                    // SAFETY: success means that it was written.
                    kept.identity.born(super::ledger::Noun::$noun, unsafe { *object });
                }
                result
            }

            pub(super) unsafe extern "system" fn $destroy(
                device: ash::vk::Device,
                object: $object,
                allocator: *const ash::vk::AllocationCallbacks<'_>,
            ) {
                // SAFETY: a live device of the caller's.
                let Some(kept) = (unsafe { $table.get(device) }) else { return };
                // A fault only shows in the count: the function returns nothing.
                let _ = kept.identity.enter($destroyed);
                // Before the call, since afterwards the handle may belong to another object.
                kept.identity.died(super::ledger::Noun::$noun, object);
                // SAFETY: the caller's arguments, passed on.
                unsafe { (kept.next.fp_v1_0().$destroy)(device, object, allocator) };
            }
        )+
    };
}
pub(super) use counted;
