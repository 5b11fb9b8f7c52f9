;; A plugin without a compiler: rotates every byte by as many places as the parameter says (a number as text, modulo 256; 13 if
;; there is none). It hides nothing from anybody; it shows all that a plugin must have.
(module
  (memory (export "memory") 1)
  ;; Where free memory begins; nothing is ever given back, because the instance ends with the call.
  (global $free (mut i32) (i32.const 16))

  ;; The interface that it is written for.
  (func (export "stere_abi") (result i32) (i32.const 1))

  ;; Room for so many bytes. Memory grows as needed; -1 where it may not.
  (func $allocate (export "stere_allocate") (param $bytes i32) (result i32)
    (local $at i32) (local $pages i32)
    (local.set $at (global.get $free))
    (global.set $free (i32.add (local.get $at) (local.get $bytes)))
    (local.set $pages (i32.sub
      (i32.shr_u (i32.add (global.get $free) (i32.const 65535)) (i32.const 16))
      (memory.size)))
    (if (i32.gt_s (local.get $pages) (i32.const 0))
      (then (if (i32.eq (memory.grow (local.get $pages)) (i32.const -1)) (then unreachable))))
    (local.get $at))

  ;; The parameter as a number.
  (func $places (param $at i32) (param $bytes i32) (result i32)
    (local $number i32) (local $end i32)
    (if (i32.eqz (local.get $bytes)) (then (return (i32.const 13))))
    (local.set $end (i32.add (local.get $at) (local.get $bytes)))
    (loop $next
      (local.set $number (i32.add
        (i32.mul (local.get $number) (i32.const 10))
        (i32.sub (i32.load8_u (local.get $at)) (i32.const 48))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $at) (local.get $end))))
    (local.get $number))

  ;; Rotates where the input lies, and answers with that place: (place << 32) | length.
  (func $rotate (param $at i32) (param $bytes i32) (param $by i32) (result i64)
    (local $next i32) (local $end i32)
    (local.set $next (local.get $at))
    (local.set $end (i32.add (local.get $at) (local.get $bytes)))
    (block $done
      (loop $more
        (br_if $done (i32.ge_u (local.get $next) (local.get $end)))
        (i32.store8 (local.get $next) (i32.add (i32.load8_u (local.get $next)) (local.get $by)))
        (local.set $next (i32.add (local.get $next) (i32.const 1)))
        (br $more)))
    (i64.or
      (i64.shl (i64.extend_i32_u (local.get $at)) (i64.const 32))
      (i64.extend_i32_u (local.get $bytes))))

  (func (export "stere_encode") (param $parameters i32) (param $parameters_bytes i32) (param $input i32) (param $bytes i32) (result i64)
    (call $rotate (local.get $input) (local.get $bytes)
      (call $places (local.get $parameters) (local.get $parameters_bytes))))

  (func (export "stere_decode") (param $parameters i32) (param $parameters_bytes i32) (param $input i32) (param $bytes i32) (result i64)
    (call $rotate (local.get $input) (local.get $bytes)
      (i32.sub (i32.const 0) (call $places (local.get $parameters) (local.get $parameters_bytes))))))
