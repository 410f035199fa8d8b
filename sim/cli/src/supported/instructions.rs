//! The instructions of PTX, each tried with every type: what the interpreter loads is supported.
//!
//! The names are those of the chapter "Instruction Set" of NVIDIA's "Parallel Thread Execution ISA", version 9.0, with one
//! form of the operands each.

use ptx::Module;

/// The scalar types that are tried.
const TYPES: [&str; 20] = [
    "pred", "b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16", "f16x2",
    "bf16", "bf16x2", "f32", "f64",
];

/// Forms of an instruction. `T` is the type; operands are `D` (a register of the type), `W` (of twice its width), `H`, `R`
/// and `Q` (of 16, 32 and 64 bits), `P` (a predicate), `A` (an address) and `S` (one in shared memory).
type Form = (&'static str, &'static [&'static str]);

/// The forms by chapter.
const CHAPTERS: [(&str, &[Form]); 9] = [
    (
        "Arithmetic",
        &[
            ("add", &["add.T D, D, D"]),
            ("add.sat", &["add.sat.T D, D, D"]),
            ("add.{rz,rm,rp}", &["add.rz.T D, D, D"]),
            ("sub", &["sub.T D, D, D"]),
            ("sub.sat", &["sub.sat.T D, D, D"]),
            ("add.cc, addc", &["addc.T D, D, D"]),
            ("sub.cc, subc", &["subc.T D, D, D"]),
            ("mad.cc, madc", &["madc.lo.T D, D, D, D"]),
            ("mul", &["mul.T D, D, D"]),
            ("mul.lo", &["mul.lo.T D, D, D"]),
            ("mul.hi", &["mul.hi.T D, D, D"]),
            ("mul.wide", &["mul.wide.T W, D, D"]),
            ("mad.lo", &["mad.lo.T D, D, D, D"]),
            ("mad.hi", &["mad.hi.T D, D, D, D"]),
            ("mad.wide", &["mad.wide.T W, D, D, W"]),
            ("mul24, mad24", &["mad24.lo.T D, D, D, D"]),
            ("fma.rn, mad.rn", &["fma.rn.T D, D, D, D"]),
            ("fma.{rz,rm,rp}", &["fma.rz.T D, D, D, D"]),
            ("fma.rn.relu", &["fma.rn.relu.T D, D, D, D"]),
            ("sad", &["sad.T D, D, D, D"]),
            ("div", &["div.T D, D, D"]),
            ("div.rn", &["div.rn.T D, D, D"]),
            ("div.approx, div.full", &["div.approx.T D, D, D"]),
            ("rem", &["rem.T D, D, D"]),
            ("abs", &["abs.T D, D"]),
            ("neg", &["neg.T D, D"]),
            ("min, max", &["min.T D, D, D"]),
            ("min.NaN, max.NaN", &["min.NaN.T D, D, D"]),
            ("min.xorsign.abs, max.xorsign.abs", &["min.xorsign.abs.T D, D, D"]),
            ("rcp.approx", &["rcp.approx.T D, D", "rcp.approx.ftz.T D, D"]),
            ("rcp.{rn,rz,rm,rp}", &["rcp.rn.T D, D"]),
            ("sqrt.approx", &["sqrt.approx.T D, D"]),
            ("sqrt.{rn,rz,rm,rp}", &["sqrt.rn.T D, D"]),
            ("rsqrt.approx", &["rsqrt.approx.T D, D"]),
            ("sin.approx, cos.approx", &["sin.approx.T D, D"]),
            ("lg2.approx", &["lg2.approx.T D, D"]),
            ("ex2.approx", &["ex2.approx.T D, D", "ex2.approx.ftz.T D, D"]),
            ("tanh.approx", &["tanh.approx.T D, D"]),
            ("testp", &["testp.finite.T P, D"]),
            ("copysign", &["copysign.T D, D, D"]),
            ("dp4a", &["dp4a.T.u32 R, R, R, R"]),
            ("dp2a", &["dp2a.lo.T.u32 R, R, R, R"]),
        ],
    ),
    (
        "Bits",
        &[
            ("and, or, xor", &["and.T D, D, D"]),
            ("not", &["not.T D, D"]),
            ("cnot", &["cnot.T D, D"]),
            ("lop3", &["lop3.T D, D, D, D, 0x80"]),
            ("lop3.BoolOp", &["lop3.or.T D|P, D, D, D, 0x80, P"]),
            ("shl", &["shl.T D, D, R"]),
            ("shr", &["shr.T D, D, R"]),
            ("shf", &["shf.l.wrap.T D, D, D, R"]),
            ("prmt", &["prmt.T D, D, D, R"]),
            ("popc", &["popc.T R, D"]),
            ("clz", &["clz.T R, D"]),
            ("bfind", &["bfind.T R, D"]),
            ("brev", &["brev.T D, D"]),
            ("bfe", &["bfe.T D, D, R, R"]),
            ("bfi", &["bfi.T D, D, D, R, R"]),
            ("fns", &["fns.T D, D, R, R"]),
            ("bmsk", &["bmsk.wrap.T D, R, R"]),
            ("szext", &["szext.wrap.T D, D, R"]),
        ],
    ),
    (
        "Comparison and selection",
        &[
            ("setp", &["setp.eq.T P, D, D"]),
            ("setp of two results", &["setp.eq.T P|P, D, D"]),
            ("set.u32", &["set.eq.u32.T R, D, D"]),
            ("set.f32", &["set.eq.f32.T R, D, D"]),
            ("set.T", &["set.eq.T.T D, D, D"]),
            ("selp", &["selp.T D, D, D, P"]),
            ("slct", &["slct.T.s32 D, D, D, R"]),
        ],
    ),
    (
        "Data movement",
        &[
            ("mov", &["mov.T D, D"]),
            ("mov of vectors", &["mov.T {H, H}, D", "mov.T {R, R}, D"]),
            ("ld, ld.{global,shared,local,param,const}", &["ld.T D, [A]"]),
            ("ld.v2", &["ld.v2.T {D, D}, [A]"]),
            ("ld.v4", &["ld.v4.T {D, D, D, D}, [A]"]),
            ("ld.v8", &["ld.v8.T {D, D, D, D, D, D, D, D}, [A]"]),
            ("ld.{volatile,relaxed,acquire}", &["ld.acquire.gpu.T D, [A]"]),
            ("ldu", &["ldu.T D, [A]"]),
            ("st", &["st.T [A], D"]),
            ("st.v4", &["st.v4.T [A], {D, D, D, D}"]),
            ("st.{volatile,relaxed,release}", &["st.release.gpu.T [A], D"]),
            ("st.async", &["st.async.shared::cluster.mbarrier::complete_tx::bytes.T [S], D, [S]"]),
            ("multimem.ld_reduce", &["multimem.ld_reduce.add.T D, [A]"]),
            ("multimem.st", &["multimem.st.T [A], D"]),
            ("multimem.red", &["multimem.red.add.T [A], D"]),
            ("prefetch, prefetchu", &["prefetch.global.L1 [A]"]),
            ("applypriority", &["applypriority.global.L2::evict_normal [A], 128"]),
            ("discard", &["discard.global.L2 [A], 128"]),
            ("createpolicy", &["createpolicy.fractional.L2::evict_last.b64 Q, 1.0"]),
            ("isspacep", &["isspacep.global P, A"]),
            ("cvta", &["cvta.global.T D, D"]),
            ("cvta.to", &["cvta.to.global.T D, D"]),
            ("mapa", &["mapa.T D, D, R"]),
            ("getctarank", &["getctarank.T R, D"]),
            ("cp.async.ca", &["cp.async.ca.shared.global [S], [A], 8"]),
            ("cp.async.cg", &["cp.async.cg.shared.global [S], [A], 16"]),
            ("cp.async.commit_group, cp.async.wait_group", &["cp.async.wait_group 0"]),
            ("cp.async.mbarrier.arrive", &["cp.async.mbarrier.arrive.shared.b64 [S]"]),
            ("cp.async.bulk", &["cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [S], [A], R, [S]"]),
            ("cp.reduce.async.bulk", &["cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [A], [S], R"]),
            ("cp.async.bulk.tensor", &["cp.async.bulk.prefetch.tensor.1d.L2.global [A, {R}]"]),
            ("tensormap.replace", &["tensormap.replace.tile.rank.global.b1024.b32 [A], 2"]),
        ],
    ),
    (
        "Textures and surfaces",
        &[
            ("tex", &["tex.1d.v4.f32.s32 {R, R, R, R}, [A, {R}]"]),
            ("tld4", &["tld4.r.2d.v4.f32.f32 {R, R, R, R}, [A, {R, R}]"]),
            ("txq", &["txq.width.b32 R, [A]"]),
            ("istypep", &["istypep.texref P, A"]),
            ("suld", &["suld.b.1d.b32.trap R, [A, {R}]"]),
            ("sust", &["sust.b.1d.b32.trap [A, {R}], R"]),
            ("sured", &["sured.b.add.1d.u32.trap [A, {R}], R"]),
            ("suq", &["suq.width.b32 R, [A]"]),
        ],
    ),
    (
        "Control",
        &[
            ("bra", &["bra END"]),
            ("brx.idx", &["brx.idx R, TARGETS"]),
            ("call", &["call callee"]),
            ("ret", &["ret"]),
            ("exit", &["exit"]),
            ("trap", &["trap"]),
            ("brkpt", &["brkpt"]),
            ("nanosleep", &["nanosleep.u32 R"]),
            ("pmevent", &["pmevent 1"]),
            ("setmaxnreg", &["setmaxnreg.inc.sync.aligned.u32 64"]),
            ("griddepcontrol", &["griddepcontrol.wait"]),
            ("alloca", &["alloca.T D, D, 8"]),
            ("stacksave", &["stacksave.T D"]),
            ("stackrestore", &["stackrestore.T D"]),
        ],
    ),
    (
        "Synchronisation and atomics",
        &[
            ("bar.sync, barrier.sync", &["bar.sync 0"]),
            ("bar.arrive", &["bar.arrive 0, 64"]),
            ("bar.red.popc", &["bar.red.popc.u32 R, 0, P"]),
            ("bar.red.{and,or}", &["bar.red.and.pred P, 0, P"]),
            ("bar.warp.sync", &["bar.warp.sync R"]),
            ("barrier.cluster", &["barrier.cluster.arrive"]),
            ("membar", &["membar.gl"]),
            ("fence", &["fence.acq_rel.gpu"]),
            ("fence.proxy", &["fence.proxy.async"]),
            ("atom.add", &["atom.add.T D, [A], D"]),
            ("atom.{min,max}", &["atom.min.T D, [A], D"]),
            ("atom.{inc,dec}", &["atom.inc.T D, [A], D"]),
            ("atom.{and,or,xor}", &["atom.and.T D, [A], D"]),
            ("atom.exch", &["atom.exch.T D, [A], D"]),
            ("atom.cas", &["atom.cas.T D, [A], D, D"]),
            ("atom.add.noftz", &["atom.add.noftz.T D, [A], D"]),
            ("red.add", &["red.add.T [A], D"]),
            ("red.{min,max}", &["red.min.T [A], D"]),
            ("red.{and,or,xor}", &["red.and.T [A], D"]),
            (
                "red.async",
                &["red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.T [S], D, [S]"],
            ),
            ("vote.sync.{all,any,uni}", &["vote.sync.all.pred P, P, R"]),
            ("vote.sync.ballot", &["vote.sync.ballot.b32 R, P, R"]),
            ("match.sync.{any,all}", &["match.any.sync.T R, D, R"]),
            ("shfl.sync", &["shfl.sync.idx.T D, D, R, R, R"]),
            ("redux.sync.{add,min,max}", &["redux.sync.add.T D, D, R"]),
            ("redux.sync.{and,or,xor}", &["redux.sync.and.T D, D, R"]),
            ("activemask", &["activemask.T D"]),
            ("elect.sync", &["elect.sync R|P, R"]),
            ("mbarrier.init, mbarrier.inval", &["mbarrier.init.shared.T [S], R"]),
            ("mbarrier.{expect_tx,complete_tx}", &["mbarrier.expect_tx.relaxed.cta.shared.T [S], R"]),
            ("mbarrier.{arrive,arrive_drop}", &["mbarrier.arrive.shared.T D, [S]"]),
            ("mbarrier.{test_wait,try_wait}", &["mbarrier.test_wait.shared.T P, [S], D"]),
            ("mbarrier.pending_count", &["mbarrier.pending_count.T R, Q"]),
            (
                "tensormap.cp_fenceproxy",
                &[
                    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [A], [S], 128",
                ],
            ),
            (
                "clusterlaunchcontrol",
                &["clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [S], [S]"],
            ),
        ],
    ),
    (
        "Matrices, besides the products below",
        &[
            ("ldmatrix", &["ldmatrix.sync.aligned.m8n8.x1.shared.T {R}, [S]"]),
            ("stmatrix", &["stmatrix.sync.aligned.m8n8.x1.shared.T [S], {R}"]),
            ("movmatrix", &["movmatrix.sync.aligned.m8n8.trans.T R, R"]),
            (
                "mma.sp",
                &["mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {R,R,R,R}, {R,R}, {R,R}, {R,R,R,R}, R, 0"],
            ),
            ("wgmma", &["wgmma.fence.sync.aligned"]),
            ("tcgen05", &["tcgen05.wait::ld.sync.aligned"]),
        ],
    ),
    (
        "Video",
        &[
            ("vadd, vsub, vabsdiff, vmin, vmax", &["vadd.u32.u32.u32 R, R, R"]),
            ("vshl, vshr", &["vshl.u32.u32.u32.wrap R, R, R"]),
            ("vmad", &["vmad.u32.u32.u32 R, R, R, R"]),
            ("vset", &["vset.u32.u32.eq R, R, R"]),
            ("vadd2, vadd4 and their like", &["vadd2.u32.u32.u32 R, R, R, R"]),
        ],
    ),
];

/// The shapes of products of matrices.
const SHAPES: [&str; 16] = [
    "m8n8k4",
    "m8n8k16",
    "m8n8k32",
    "m8n8k128",
    "m8n32k16",
    "m16n8k4",
    "m16n8k8",
    "m16n8k16",
    "m16n8k32",
    "m16n8k64",
    "m16n8k128",
    "m16n8k256",
    "m16n16k8",
    "m16n16k16",
    "m32n8k16",
    "m64n8k16",
];
/// The types of products: of the result and the sum, and of the factors.
const PRODUCTS: [(&str, &str); 14] = [
    ("f16", "f16"),
    ("f32", "f16"),
    ("f32", "bf16"),
    ("f32", "tf32"),
    ("f64", "f64"),
    ("s32", "u8"),
    ("s32", "s8"),
    ("s32", "u4"),
    ("s32", "s4"),
    ("s32", "b1"),
    ("f32", "e4m3"),
    ("f32", "e5m2"),
    ("f16", "e4m3"),
    ("f32", "e2m1"),
];
/// Special registers (chapter "Special Registers"), with the type of the move that reads them.
const REGISTERS: [(&str, &str); 35] = [
    ("u32", "%tid.x"),
    ("u32", "%ntid.x"),
    ("u32", "%laneid"),
    ("u32", "%warpid"),
    ("u32", "%nwarpid"),
    ("u32", "%ctaid.x"),
    ("u32", "%nctaid.x"),
    ("u32", "%smid"),
    ("u32", "%nsmid"),
    ("u64", "%gridid"),
    ("pred", "%is_explicit_cluster"),
    ("u32", "%clusterid.x"),
    ("u32", "%nclusterid.x"),
    ("u32", "%cluster_ctaid.x"),
    ("u32", "%cluster_nctaid.x"),
    ("u32", "%cluster_ctarank"),
    ("u32", "%cluster_nctarank"),
    ("u32", "%lanemask_eq"),
    ("u32", "%lanemask_le"),
    ("u32", "%lanemask_lt"),
    ("u32", "%lanemask_ge"),
    ("u32", "%lanemask_gt"),
    ("u32", "%clock"),
    ("u32", "%clock_hi"),
    ("u64", "%clock64"),
    ("u32", "%pm0"),
    ("u32", "%envreg1"),
    ("u64", "%globaltimer"),
    ("u32", "%globaltimer_lo"),
    ("u32", "%globaltimer_hi"),
    ("u32", "%reserved_smem_offset_begin"),
    ("u32", "%total_smem_size"),
    ("u32", "%aggr_smem_size"),
    ("u32", "%dynamic_smem_size"),
    ("u64", "%current_graph_exec"),
];

/// The register of a type, in the kernel of [`loads`]; `doubled`: of twice the width.
fn register(type_: &str, doubled: bool) -> &'static str {
    let bits = match type_ {
        "pred" => return "%p",
        "b8" | "u8" | "s8" | "b16" | "u16" | "s16" | "f16" | "bf16" => 16,
        "b128" => 128,
        _ if type_.ends_with("64") => 64,
        _ => 32,
    };
    match bits << u32::from(doubled) {
        16 => "%h",
        32 => "%r",
        64 => "%q",
        // Declared in no kernel: registers of 128 bits are not supported.
        _ => "%wide",
    }
}

/// Whether the interpreter loads a kernel with this instruction.
fn loads(instruction: &str) -> bool {
    let source = format!(
        ".version 8.7\n.target sm_80\n.address_size 64\n.func callee() {{ ret; }}\n.visible .entry k()\n{{\n\
         .reg .pred %p; .reg .b16 %h; .reg .b32 %r; .reg .b64 %q; .shared .align 16 .b8 memory[256];\n\
         TARGETS: .branchtargets END;\n{instruction};\nEND: ret;\n}}\n"
    );
    Module::load(&source).is_ok()
}

/// The instruction of a form, with registers for its operands.
fn instruction(form: &str, type_: &str) -> String {
    let (opcode, operands) = form.split_once(' ').unwrap_or((form, ""));
    let opcode: Vec<&str> = opcode.split('.').map(|part| if part == "T" { type_ } else { part }).collect();
    let mut text = opcode.join(".") + " ";
    for part in operands.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric()) {
        let word = part.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
        text.push_str(match word {
            "D" => register(type_, false),
            "W" => register(type_, true),
            "H" => "%h",
            "R" => "%r",
            "Q" | "A" => "%q",
            "P" => "%p",
            "S" => "memory",
            other => other,
        });
        text.push_str(&part[word.len()..]);
    }
    text
}

/// The answer of a row: the types, a plain yes of an instruction without types, or no.
fn answer(forms: &[&str]) -> String {
    let typed = forms.iter().any(|form| form.split([' ', '.']).any(|part| part == "T"));
    let supported = |type_: &str| forms.iter().any(|form| loads(&instruction(form, type_)));
    if !typed {
        return if supported("b32") { "yes".to_owned() } else { "no".to_owned() };
    }
    let types: Vec<String> = TYPES.iter().filter(|type_| supported(type_)).map(|type_| format!("`.{type_}`")).collect();
    if types.is_empty() { "no".to_owned() } else { types.join(" ") }
}

/// Whether a product loads with fragments of any numbers of registers.
fn multiplies(opcode: &str, [d, a]: [&str; 2]) -> bool {
    let fragments =
        |type_: &str| [1, 2, 4, 8].map(|count| vec![if type_ == "f64" { "%q" } else { "%r" }; count].join(", "));
    let (sums, factors) = (fragments(d), fragments(a));
    sums.iter().any(|sum| {
        factors.iter().any(|first| {
            factors.iter().any(|second| loads(&format!("{opcode} {{{sum}}}, {{{first}}}, {{{second}}}, {{{sum}}}")))
        })
    })
}

/// The types of the products of each shape.
fn products(name: &str) -> Vec<(String, String)> {
    let types = |shape: &str| {
        let known = PRODUCTS.iter().filter(|(d, a)| {
            let operation = if *a == "b1" { ".xor.popc" } else { "" };
            let types = if name == "wmma.mma" && *a == "f16" { format!("{d}.{d}") } else { format!("{d}.{a}.{a}.{d}") };
            multiplies(&format!("{name}{operation}.sync.aligned.row.col.{shape}.{types}"), [d, a])
                || multiplies(&format!("{name}.sync.aligned.{shape}.row.col.{types}{operation}"), [d, a])
        });
        known.map(|(d, a)| format!("`.{d}` of `.{a}`")).collect::<Vec<_>>().join(", ")
    };
    let rows = SHAPES.iter().map(|shape| (format!("`{name}` `.{shape}`"), types(shape)));
    rows.filter(|(_, types)| !types.is_empty()).collect()
}

/// The types of numbers, unlike those of bits.
fn values() -> impl Iterator<Item = &'static &'static str> {
    TYPES.iter().filter(|type_| type_.starts_with(['u', 's', 'f']) || type_.starts_with("bf"))
}

/// The types that each type converts from.
fn conversions() -> Vec<(String, String)> {
    let row = |to: &&str| {
        let converts = |from: &&str| {
            let rounding = ["", ".rn", ".rni", ".rzi", ".rna", ".rn.satfinite"];
            let same = |mode: &&str| {
                let (d, a) = (register(to, false), register(from, false));
                let two = to.ends_with("x2");
                let operands = if two { format!("{d}, {a}, {a}") } else { format!("{d}, {a}") };
                loads(&format!("cvt{mode}.{to}.{from} {operands}"))
            };
            rounding.iter().any(same)
        };
        let types: Vec<String> = values().filter(|from| converts(from)).map(|from| format!("`.{from}`")).collect();
        (format!("`cvt` to `.{to}`"), if types.is_empty() { "no".to_owned() } else { types.join(" ") })
    };
    let mut rows: Vec<_> = values().chain(&["tf32", "e4m3x2", "e5m2x2"]).map(row).collect();
    let none = |(to, from): &(String, String)| from != "no" || to.contains("x2");
    rows.retain(none);
    let packs = ["u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"];
    let pack = |to: &&&str| {
        ["cvt.pack.sat.T.s32 %r, %r, %r", "cvt.pack.sat.T.s32.b32 %r, %r, %r, %r"]
            .iter()
            .any(|form| loads(&form.replace('T', to)))
    };
    let types: Vec<String> = packs.iter().filter(pack).map(|to| format!("`.{to}`")).collect();
    rows.push(("`cvt.pack.sat` to".to_owned(), types.join(" ")));
    rows
}

/// The tables of instructions, in Markdown.
pub(super) fn tables() -> String {
    let mut text = String::new();
    let mut table = |title: &str, heads: [&str; 2], rows: Vec<(String, String)>| {
        text.push_str(&format!("### {title}\n\n| {} | {} |\n|---|---|\n", heads[0], heads[1]));
        for (name, answer) in rows {
            text.push_str(&format!("| {name} | {answer} |\n"));
        }
        text.push('\n');
    };
    for (title, forms) in CHAPTERS {
        let row = |(name, forms): &Form| {
            let code = |name: &str| match name.split_once(" of ") {
                Some((name, rest)) => format!("`{name}` of {rest}"),
                None => format!("`{name}`"),
            };
            let names: Vec<String> = name.split(", ").map(code).collect();
            (names.join(", "), answer(forms))
        };
        table(title, ["instruction", "types"], forms.iter().map(row).collect());
    }
    table("Conversions", ["instruction", "from"], conversions());
    let all = [products("mma"), products("wmma.mma")].concat();
    table("Products of matrices", ["shape", "types of the sums and the factors"], all);
    let reads = |(type_, name): &(&str, &str)| {
        let yes = loads(&format!("mov.{type_} {}, {name}", register(type_, false)));
        (format!("`{name}`"), if yes { "yes".to_owned() } else { "no".to_owned() })
    };
    table("Special registers", ["register", "supported"], REGISTERS.iter().map(reads).collect());
    text
}
