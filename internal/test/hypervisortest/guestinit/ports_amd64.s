#include "textflag.h"

// func inb(port uint16) byte
TEXT ·inb(SB), NOSPLIT, $0-9
	MOVW port+0(FP), DX
	INB
	MOVB AX, ret+8(FP)
	RET
