"""``ttpu check``: will a program run on a TPU, and how well? Answered on the software TPU, before a TPU is rented.

``run`` is the process that runs the program, under ``record`` (operators), ``steps``, ``devices`` (cuda and the CPU
stand for tpu) and ``memory``; ``parity`` and ``cost`` follow when it is over. ``seen`` makes tables of what they saw,
``judge`` findings and the verdict, ``report`` and ``page`` text and HTML. ``command`` starts it all.
"""
