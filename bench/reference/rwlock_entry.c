/* SPDX-License-Identifier: BSD-2-Clause */
/* One read-write lock for each guest; see rwlock_entry.h. */
#include "rwlock_entry.h"

void rwlock_guest_init(struct rwlock_guest *guest)
{
    guest->word.word = 0;
    pthread_rwlock_init(&guest->posix, NULL);
}

/* What an entry does under its CPU's lock. */
static int look(struct hvmem_vcpu *vcpu, hvmem_cpu cpu)
{
    hvmem_u64 state = hvmem__cpu_enter(vcpu->vcpus, cpu);
    int here = hvmem__load(&vcpu->cpu) == cpu && vcpu->work == NULL;

    hvmem__cpu_leave(vcpu->vcpus, cpu, state);
    return here;
}

int rwlock_entry_word(struct rwlock_guest *guest, struct hvmem_vcpu *vcpu, hvmem_cpu cpu)
{
    int here;

    rwlock_word_read(&guest->word);
    here = look(vcpu, cpu);
    rwlock_word_read_end(&guest->word);
    return here;
}

int rwlock_entry_posix(struct rwlock_guest *guest, struct hvmem_vcpu *vcpu, hvmem_cpu cpu)
{
    int here;

    pthread_rwlock_rdlock(&guest->posix);
    here = look(vcpu, cpu);
    pthread_rwlock_unlock(&guest->posix);
    return here;
}
