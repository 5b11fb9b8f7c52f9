;; Told afterwards, adds up the bytes of the file's content and notes the sum. Refuses what begins with 'X'; what begins with 'L' it
;; never comes to an end with. Of names it needs nothing.
(module (memory (export "memory") 16) (global $top (mut i32) (i32.const 1024))
  (global $sum (mut i64) (i64.const 0)) (global $at (mut i64) (i64.const 0))
  (func (export "stere_abi") (result i32) (i32.const 1))
  (func (export "stere_allocate") (param $bytes i32) (result i32) (local $place i32)
    (local.set $place (global.get $top))
    (global.set $top (i32.add (global.get $top) (local.get $bytes)))
    (local.get $place))
  ;; Wants 128 KiB from an offset that is put behind the first byte; the note; why it refuses.
  (data (i32.const 16) "\03\00\00\00\00\00\00\00\00\00\00\02\00")
  (data (i32.const 48) "\02")
  (data (i32.const 64) "no X here")
  (func (export "stere_after_events") (result i32) (i32.const 0x71))
  (func $more (result i64)
    (i64.store offset=1 align=1 (i32.const 16) (global.get $at))
    (i64.const 0x0000_0010_0000_000d))
  (func $end (result i64)
    (i64.store offset=1 align=1 (i32.const 48) (global.get $sum))
    (i64.const 0x0000_0030_0000_0009))
  (func (export "stere_after") (param $p i32) (param $pn i32) (param $i i32) (param $n i32) (result i64)
    ;; Of what was removed or renamed there is nothing to say.
    (if (i32.gt_u (i32.load (local.get $i)) (i32.const 4)) (then (return (i64.const 0))))
    (call $more))
  (func (export "stere_content") (param $c i32) (param $n i32) (result i64) (local $k i32)
    (if (i32.eqz (local.get $n)) (then (return (call $end))))
    (if (i64.eqz (global.get $at))
      (then
        (if (i32.eq (i32.load8_u (local.get $c)) (i32.const 88)) (then (return (i64.const 0x8000_0040_0000_0009))))
        (if (i32.eq (i32.load8_u (local.get $c)) (i32.const 76)) (then (loop $ever (br $ever))))))
    (loop $next
      (global.set $sum
        (i64.add (global.get $sum) (i64.load8_u (i32.add (local.get $c) (local.get $k)))))
      (local.set $k (i32.add (local.get $k) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $k) (local.get $n))))
    (global.set $at (i64.add (global.get $at) (i64.extend_i32_u (local.get $n))))
    (call $more)))
