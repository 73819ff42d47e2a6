/*
 * Prints libseccomp's program for the rules on its standard input, one word after the other:
 *
 *     a NAME                            an architecture
 *     r NAME ACTION N [ARG OP A B]...   a rule with N conditions
 *
 * The only argument is the action for all other calls. The calls of libseccomp are the same as crun's.
 */
#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum scmp_compare operator(const char *name)
{
	static const struct { const char *name; enum scmp_compare op; } all[] = {
		{ "SCMP_CMP_NE", SCMP_CMP_NE }, { "SCMP_CMP_LT", SCMP_CMP_LT }, { "SCMP_CMP_LE", SCMP_CMP_LE },
		{ "SCMP_CMP_EQ", SCMP_CMP_EQ }, { "SCMP_CMP_GE", SCMP_CMP_GE }, { "SCMP_CMP_GT", SCMP_CMP_GT },
		{ "SCMP_CMP_MASKED_EQ", SCMP_CMP_MASKED_EQ },
	};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (!strcmp(name, all[i].name))
			return all[i].op;
	exit(3);
}

int main(int argc, char **argv)
{
	char kind, name[64], op[32];
	unsigned action, count;
	scmp_filter_ctx ctx;

	if (argc != 2 || !(ctx = seccomp_init(strtoul(argv[1], NULL, 0))))
		return 1;
	while (scanf(" %c %63s", &kind, name) == 2) {
		struct scmp_arg_cmp args[6] = { 0 };
		int err;

		if (kind == 'a') {
			err = seccomp_arch_add(ctx, seccomp_arch_resolve_name(name));
			if (err < 0 && err != -EEXIST)
				return 2;
			continue;
		}
		if (scanf("%x %u", &action, &count) != 2 || count > 6)
			return 3;
		for (unsigned i = 0; i < count; i++) {
			unsigned long long a, b;

			if (scanf("%u %31s %llu %llu", &args[i].arg, op, &a, &b) != 4)
				return 3;
			args[i].op = operator(op);
			args[i].datum_a = a;
			args[i].datum_b = b;
		}
		int call = seccomp_syscall_resolve_name(name);
		if (call == __NR_SCMP_ERROR)
			continue;
		if ((err = seccomp_rule_add_array(ctx, action, call, count, args)) < 0) {
			fprintf(stderr, "%s: %s\n", name, strerror(-err));
			return 4;
		}
	}
	return seccomp_export_bpf(ctx, 1) ? 5 : 0;
}
