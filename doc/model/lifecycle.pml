/*
 * The life of one workspace, for spin: owners that may die or stall at any point, a platform that
 * may lose an instance, restore the wrong thing or spoil a snapshot, and an agent that guards its
 * own gate. It checks the design, not the code; lib/core/recover.c and its neighbours are written
 * in the same order. See README.md for how to read and run it.
 *
 * States, operations and STEP_NUMBER come from lib/core/transitions.def, like the C table.
 */
#include "states.pml"

/* ---- how large: see bounds in tests/model/check_model.py ---- */
#ifndef OWNERS
#define OWNERS 1
#endif
#ifndef TURNS
#define TURNS 3          /* operations and take-overs that each owner begins */
#endif
#ifndef MISHAPS
#define MISHAPS 1        /* instances lost or replaced, snapshots spoiled */
#endif
#ifndef DEATHS
#define DEATHS 1         /* an owner may die after every step, and comes back knowing nothing */
#endif
#ifndef LOST_ANSWERS
#define LOST_ANSWERS 1   /* a call that took effect may look as if it had failed */
#endif
#ifndef TAKE_ENDS
#define TAKE_ENDS 1      /* taking a snapshot ends the instance (gvisor:); 0: it stays, sealed */
#endif
#ifndef BEGIN_RUNNING
#define BEGIN_RUNNING 0  /* begin with a workspace that runs, to reach deeper */
#endif
/* What owners may begin; taking over is always allowed. */
#ifndef MAY_CREATE
#define MAY_CREATE 1
#endif
#ifndef MAY_DELETE
#define MAY_DELETE 1
#endif
#ifndef MAY_CHECKPOINT
#define MAY_CHECKPOINT 1
#endif
#ifndef MAY_SUSPEND
#define MAY_SUSPEND 1
#endif
#ifndef MAY_RESTART
#define MAY_RESTART 1
#endif

/* ---- mutations: each of these set to 0 must be found ---- */
#ifndef FENCED
#define FENCED 1          /* the platform refuses a call of an older epoch */
#endif
#ifndef SEAL_ENDS_LEASE
#define SEAL_ENDS_LEASE 1 /* a sealed agent opens to Open alone */
#endif
#ifndef HASH_COMPARED
#define HASH_COMPARED 1   /* the nonce, by the library at Prove and by the agent at Open */
#endif
#ifndef MEMORY_ASKED
#define MEMORY_ASKED 1    /* and whether the agent that knows it is the one that drew it */
#endif
#ifndef VERIFIED_FIRST
#define VERIFIED_FIRST 1  /* nothing is released before its snapshot was verified */
#endif
#ifndef TREE_KEPT_FIRST
#define TREE_KEPT_FIRST 1 /* interrupted files are kept before a snapshot is restored over them */
#endif
#ifndef RETAKEN_FROM_STEP
#define RETAKEN_FROM_STEP 1 /* a taker goes by the step that its predecessor wrote */
#endif

#ifndef TAKER_PROVES
#define TAKER_PROVES 1    /* a taker tells a sealed agent its epoch before it discards it */
#endif
#ifndef BLOCKED_IS_JUDGED
#define BLOCKED_IS_JUDGED 1 /* a blocked instance that may hold work is looked at, not replaced */
#endif
#ifndef REOPEN_NOTED
#define REOPEN_NOTED 1    /* the record says that the gate is about to be opened again */
#endif
#ifndef GONE_IS_ASKED
#define GONE_IS_ASKED 1   /* an instance lost after its Open makes the workspace interrupted */
#endif

#define MOST_WORK 2

/*
 * The record: changed by compare-and-swap alone. The epoch never falls, not even for a namesake
 * made later, because a record is known by its id, too.
 */
/*
 * operation.step, as far as a taker asks for it: the interrupted files are being kept; the gate is
 * about to be opened again; the snapshot stands in the list, release the instance; or go on
 * (checkpoint).
 */
mtype = { BEGIN, KEEP, REOPEN, RELEASE, GO_ON };
bool there = false;
mtype state = GONE;
byte epoch = 0;
mtype operation = NOBODY;
mtype step = BEGIN;
byte recorded = 0;     /* incarnation */
bool precious = false; /* that instance may hold work which no snapshot has */
byte next_run = 0;     /* the run that the Open under way begins */
byte point = 0;        /* the recovery point: snapshot 1 or 2 */
byte making = 0;       /* the snapshot under way */

/* Snapshots 1 and 2; a new one takes the place of the one that is not the recovery point. */
mtype = { NOTHING, PARTIAL, MADE, COMPLETE };
mtype stage[3] = NOTHING;
bool intact[3] = false;
byte held_work[3] = 0;
byte held_seal[3] = 0; /* the nonce in the frozen agent; 0: it was not sealed */
byte hash[3] = 0;      /* in the record: of the nonce that it must prove */

/* The platform. Incarnations are numbers that never come again. */
byte live = 0;
byte born = 0;
byte taking = 0;       /* whoever takes a snapshot of this instance holds the platform's lock */
byte mishaps = 0;

/* The agent in the live instance. A nonce is known by the epoch of its seal. */
mtype = { NOT_OPENED, OPEN, QUIESCED, SEALED };
mtype gate = NOT_OPENED;
byte agent_epoch = 0;  /* the highest it was told */
byte seal = 0;
byte token = 0;        /* the run of its last Open, as far as Open changed it */
bool in_memory = false; /* it drew its nonce itself */

/* What nobody can see, for the properties. */
byte work = 0;         /* acknowledged, in the live instance */
bool genuine = false;  /* the live instance is what it has to be */
bool valuable = false; /* somebody worked in it */
bool entered = false;  /* work may happen as soon as its gate is open */
bool unsaved = false;  /* the live files hold what no snapshot holds */
bool worked = false;   /* somebody worked since the last snapshot was taken */
bool rotten = false;   /* a snapshot was spoiled after it was taken */
byte promised = 0;     /* work that a caller was told is safe */

hidden byte number;
c_code { \#include <stdio.h> };
c_decl { static unsigned char sbx_taken[64]; };

/* Names for what failed; never anything but false. */
bool only_steps_of_the_table = false, one_instance = false, never_unverified = false,
     nothing_lost = false, never_nothing = false, running_is_open = false,
     suspended_is_gone = false, blocked_keeps_its_snapshot = false, after_delete_nothing = false,
     no_stranger = false, back_to_the_recovery_point = false;

#define OURS(e) (there && epoch == (e))
#define MAY(e) (!FENCED || OURS(e))
/* An owner sees the platform through its own copy of the record; `mine`: the incarnation there. */
#define PRESENT (live != 0 && live == mine)
#define REACHED(e) (PRESENT && agent_epoch <= (e))
#define IDLE (there && operation == NOBODY)
#define OTHER_SLOT (point == 1 -> 2 : 1)

inline sound()
{
  assert(running_is_open || !IDLE || state != RUNNING || live == 0 || live != recorded ||
         (gate == OPEN && genuine));
  assert(suspended_is_gone || !IDLE || state != SUSPENDED ||
         (live == 0 && stage[point] == COMPLETE));
  assert(blocked_keeps_its_snapshot || !IDLE || state != BLOCKED || stage[point] == COMPLETE);
  assert(after_delete_nothing || there ||
         (live == 0 && taking == 0 && !unsaved && stage[1] == NOTHING && stage[2] == NOTHING));
  assert(never_nothing || !there || state == DELETING || operation == BY_CREATE ||
         (live != 0 && genuine) || stage[point] == COMPLETE || unsaved);
  assert(no_stranger || operation != NOBODY || gate != OPEN || live == recorded)
}

/* A step of the record's state. */
inline move(to, by)
{
  number = STEP_NUMBER(state, to, by);
  assert(only_steps_of_the_table || number > 0);
  c_code {
    if (!sbx_taken[number]) {
      sbx_taken[number] = 1;
      printf("taken: %s\n", sbx_steps[number]);
    }
  };
  state = to
}

/* What was made becomes the recovery point. */
inline list_made() { point = making; making = 0; unsaved = worked }

inline no_agent()
{
  gate = NOT_OPENED; agent_epoch = 0; seal = 0; token = 0; in_memory = false;
  genuine = false; valuable = false; entered = false; work = 0
}

inline begin_instance()
{
  assert(one_instance || live == 0);
  born++; live = born; no_agent()
}

inline no_snapshot(slot)
{
  stage[slot] = NOTHING; intact[slot] = false; held_work[slot] = 0; held_seal[slot] = 0;
  hash[slot] = 0
}

inline end_instance() { live = 0; no_agent() }

/* The owner may die here. */
inline slip() { if :: true :: DEATHS -> goto reborn fi }
/* Here too; or it may not learn that its call took effect. */
inline slip_answer() { if :: true :: DEATHS -> goto reborn :: LOST_ANSWERS && ok -> ok = false fi }

inline claim(to, by)
{
  epoch++; e = epoch; mine = recorded; kind = by; move(to, by); operation = by; step = BEGIN
}

inline take_over()
{
  epoch++; e = epoch; mine = recorded; kind = operation;
  if :: !RETAKEN_FROM_STEP -> step = BEGIN :: else fi
}

/* The operation is over. */
inline settle(to) { move(to, kind); operation = NOBODY; step = BEGIN; making = 0; next_run = 0 }

/* End and remove the instance, keep the files. Nobody may have worked in it. */
inline discard()
{
  atomic {
    taking == 0 ->
    if
    :: MAY(e) -> assert(nothing_lost || !valuable); end_instance(); ok = true; sound()
    :: !MAY(e) -> ok = false
    fi
  }
}

/* Users, the agent's own clock, and what happens to a platform. */
active proctype world()
{
end:
  do
  :: atomic { /* whoever holds a session works, and so does what a restored instance runs */
       gate == OPEN && (entered || (IDLE && state == RUNNING)) ->
       assert(never_unverified || genuine);
       entered = true; valuable = true; unsaved = true; worked = true;
       if :: work < MOST_WORK -> work++ :: else fi }
  :: atomic { gate == QUIESCED -> gate = OPEN; sound() } /* the lease of a quiesce runs out */
  :: atomic { !SEAL_ENDS_LEASE && gate == SEALED -> gate = OPEN; seal = 0; sound() }
  :: atomic { /* a snapshot under way ends, whether its owner lives or not */
       taking != 0 ->
       if
       :: taking == live ->
            stage[making] = MADE; held_work[making] = work; worked = false;
            held_seal[making] = (gate == SEALED -> seal : 0);
            if
            :: intact[making] = true
            :: mishaps < MISHAPS -> mishaps++; intact[making] = false
            fi;
            if :: TAKE_ENDS -> end_instance() :: else fi
       :: taking == live -> stage[making] = NOTHING
       :: taking == live && TAKE_ENDS && mishaps < MISHAPS -> mishaps++;
            stage[making] = NOTHING; end_instance()
       :: taking != live -> stage[making] = NOTHING
       fi;
       taking = 0; sound() }
  :: atomic { live != 0 && mishaps < MISHAPS -> mishaps++; /* killed, out of memory, reboot */
       end_instance(); sound() }
  :: atomic { live != 0 && mishaps < MISHAPS -> mishaps++; /* the platform starts it afresh */
       end_instance(); begin_instance(); sound() }
  :: atomic { stage[point] == COMPLETE && intact[point] && mishaps < MISHAPS -> mishaps++;
       intact[point] = false; rotten = true; sound() }
  od
}

proctype owner()
{
  byte e = 0, turns = 0, mine = 0, attempts = 0;
  bool ok = false, complete = false, listed = false, reopened = false;
  mtype kind = NOBODY;

reborn:
  atomic { e = 0; mine = 0; attempts = 0; ok = false; complete = false; listed = false;
    reopened = false; kind = NOBODY };
end_choose:
  atomic {
    if
    :: turns == TURNS -> goto done
    :: turns < TURNS && MAY_CREATE && !there -> turns++;
         there = true; epoch++; e = epoch; state = CREATING; operation = BY_CREATE;
         kind = BY_CREATE; goto starting
    :: turns < TURNS && IDLE && state == RUNNING && MAY_SUSPEND -> turns++;
         claim(SUSPENDING, BY_SUSPEND); goto suspending
    :: turns < TURNS && IDLE && state == RUNNING && MAY_CHECKPOINT -> turns++;
         claim(SUSPENDING, BY_CHECKPOINT); goto suspending
    :: turns < TURNS && IDLE && (state == SUSPENDED || state == BLOCKED) -> turns++;
         claim(RESUMING, BY_RESUME); goto resuming
    :: turns < TURNS && IDLE && state == INTERRUPTED && point != 0 -> turns++;
         claim(RESUMING, BY_RESUME); if :: TREE_KEPT_FIRST -> step = KEEP :: else fi; goto keeping
    :: turns < TURNS && IDLE && state == INTERRUPTED && MAY_RESTART -> turns++;
         claim(CREATING, BY_RESTART); goto restarting
    :: turns < TURNS && there && MAY_DELETE -> turns++; /* also over another's operation */
         claim(DELETING, BY_DELETE); goto deleting
    :: IDLE && state == RUNNING && live != recorded -> /* looking costs no turn */
         move(INTERRUPTED, NOBODY); sound(); goto reborn
    /* An operation whose owner is dead, or only slow. */
    :: turns < TURNS && there && (operation == BY_CREATE || operation == BY_DELETE) -> turns++;
         claim(DELETING, BY_DELETE); goto deleting
    :: turns < TURNS && there && operation == BY_RESTART -> turns++;
         take_over(); goto giving_up_start
    :: turns < TURNS && there && state == SUSPENDING -> turns++; take_over(); goto settling_suspend
    :: turns < TURNS && there && state == RESUMING -> turns++; take_over(); goto settling_resume
    fi
  };

  /* ---- create; restart over the live files ---- */
restarting:
  slip();
  discard(); slip_answer();
  if :: !ok -> goto giving_up_start :: else fi;
starting:
  slip();
  atomic {                                               /* provision */
    taking == 0 ->
    if
    :: MAY(e) -> begin_instance(); genuine = true; unsaved = true; mine = live; ok = true; sound()
    :: ok = false
    fi
  };
  slip_answer();
  if :: !ok -> goto giving_up_start :: else fi;
  atomic { if :: OURS(e) -> recorded = mine; precious = true :: else -> goto reborn fi };
  slip();
  atomic {                                               /* Open of a fresh agent */
    if
    :: REACHED(e) && gate == NOT_OPENED -> gate = OPEN; agent_epoch = e; ok = true; sound()
    :: else -> ok = false
    fi
  };
  slip_answer();
  if :: !ok -> goto giving_up_start :: else fi;
  atomic {
    if :: OURS(e) -> promised = 0; settle(RUNNING); sound() :: else fi;
    goto reborn
  };
giving_up_start:
  if
  :: kind == BY_CREATE ->
       atomic {
         if :: OURS(e) -> claim(DELETING, BY_DELETE); goto deleting :: else -> goto reborn fi
       }
  :: else
  fi;
  discard(); slip_answer();
  if :: !ok -> goto reborn :: else fi;
  atomic {
    if :: OURS(e) -> recorded = 0; settle(INTERRUPTED); sound() :: else fi;
    goto reborn
  };

  /* ---- delete: instance, then files and snapshots, then the record ---- */
deleting:
  slip();
  atomic {
    taking == 0 ->
    if :: MAY(e) -> end_instance(); ok = true; sound() :: !MAY(e) -> ok = false fi
  };
  slip_answer();
  if :: !ok -> goto standing_still :: else fi;
  atomic {
    taking == 0 ->
    if
    :: MAY(e) -> no_snapshot(1); no_snapshot(2); unsaved = false; ok = true; sound()
    :: !MAY(e) -> ok = false
    fi
  };
  slip_answer();
  if :: !ok -> goto standing_still :: else fi;
  atomic {
    if
    :: OURS(e) -> settle(GONE); there = false; recorded = 0; precious = false; point = 0;
         promised = 0; sound()
    :: else
    fi;
    goto reborn
  };
standing_still: /* nobody at it, so that the next caller goes on at once */
  atomic { if :: OURS(e) -> operation = NOBODY; sound() :: else fi; goto reborn };

  /* ---- suspend and checkpoint ---- */
suspending:
  slip();
  atomic {
    if
    :: REACHED(e) && gate == OPEN && agent_epoch < e -> gate = QUIESCED; agent_epoch = e; ok = true
    :: else -> ok = false
    fi
  };
  slip_answer();
  if :: !ok -> goto settling_suspend :: true -> goto settling_suspend /* busy, or cancelled */
     :: ok fi;
  atomic {
    if
    :: REACHED(e) && gate == QUIESCED && agent_epoch == e ->
         gate = SEALED; seal = e; in_memory = true; ok = true
    :: else -> ok = false
    fi
  };
  slip_answer();
  if :: !ok -> goto settling_suspend :: else fi;
  atomic {
    if
    :: OURS(e) -> making = OTHER_SLOT; no_snapshot(making); hash[making] = e; sound()
    :: else -> goto reborn
    fi
  };
  slip();
  atomic {
    taking == 0 ->
    if
    :: MAY(e) && PRESENT -> taking = live; stage[making] = PARTIAL; ok = true
    :: else -> ok = false
    fi
  };
  slip();
  atomic {                                               /* wait for it; the manifest comes last */
    taking == 0 ->
    if
    :: ok && MAY(e) && stage[making] == MADE -> stage[making] = COMPLETE
    :: else -> ok = false
    fi
  };
  slip_answer();
  if :: !ok -> goto settling_suspend :: else fi;
  atomic { if :: VERIFIED_FIRST && !intact[making] -> goto settling_suspend :: else fi };
  atomic {
    if
    :: !OURS(e) -> goto reborn
    :: OURS(e) -> list_made(); step = (kind == BY_SUSPEND -> RELEASE : GO_ON); sound()
    fi
  };
  if
  :: kind == BY_SUSPEND -> goto releasing
  :: kind == BY_CHECKPOINT && live != 0 -> goto settling_suspend
  :: kind == BY_CHECKPOINT && live == 0                  /* it goes on as a resume */
  fi;
  slip();
  atomic {
    if
    :: OURS(e) -> promised = held_work[point]; recorded = 0; mine = 0; step = BEGIN;
         move(RESUMING, BY_CHECKPOINT); sound(); goto restoring
    :: else -> goto reborn
    fi
  };
releasing:
  slip();
  atomic {
    taking == 0 ->
    if
    :: MAY(e) ->
         assert(nothing_lost || !valuable ||
                (held_work[point] == work && (intact[point] || rotten) &&
                 stage[point] == COMPLETE));
         assert(nothing_lost || !unsaved);
         end_instance(); ok = true; sound()
    :: !MAY(e) -> ok = false
    fi
  };
  slip_answer();
  if :: !ok -> goto reborn :: else fi;
  atomic {
    if
    :: OURS(e) -> recorded = 0; precious = false; promised = held_work[point];
         settle(SUSPENDED); sound()
    :: else
    fi;
    goto reborn
  };

settling_suspend: /* what it becomes where a step failed, or where the owner died */
  slip();
  atomic {
    taking == 0 ->
    if
    :: !OURS(e) -> goto reborn
    :: OURS(e) && step == RELEASE -> goto releasing
    :: OURS(e) && step != RELEASE ->
         listed = step == GO_ON; reopened = step == REOPEN;
         if :: making != 0 && stage[making] == MADE -> stage[making] = COMPLETE :: else fi;
         complete = making != 0 && stage[making] == COMPLETE && intact[making];
         if :: making != 0 && !complete -> no_snapshot(making) :: else fi
    fi;
    sound()
  };
  slip();
  if
  :: live != 0 && live != mine -> goto reborn            /* another instance: told, left alone */
  :: PRESENT ->
       atomic { /* from here somebody may work in it: a loss is told, not passed over */
         if
         :: OURS(e) -> if :: REOPEN_NOTED -> step = REOPEN :: else fi;
         :: else -> goto reborn
         fi
       };
       slip();
       atomic { /* Open; the very instance that was sealed: its own word for the seal will do */
         if
         :: REACHED(e) && gate != NOT_OPENED ->
              gate = OPEN; seal = 0; agent_epoch = e; ok = true; sound()
         :: else -> ok = false
         fi
       };
       slip_answer();
       if :: !ok -> goto reborn :: else fi;
       atomic {
         if
         :: OURS(e) ->
              if :: complete -> list_made() :: else fi;
              if :: complete || listed -> promised = held_work[point] :: else fi;
              settle(RUNNING); sound()
         :: else
         fi;
         goto reborn
       }
  :: live == 0 && (complete || listed) && !reopened ->
       atomic {
         if
         :: OURS(e) -> if :: complete -> list_made() :: else fi;
              step = RELEASE; sound(); goto releasing
         :: else -> goto reborn
         fi
       }
  :: live == 0 && (reopened || !(complete || listed)) ->
       discard(); slip_answer();
       if :: !ok -> goto reborn :: else fi;
       atomic {
         if
         :: OURS(e) -> if :: complete -> list_made() :: else fi;
              recorded = 0; settle(INTERRUPTED); sound()
         :: else
         fi;
         goto reborn
       }
  fi;

  /* ---- resume ---- */
keeping: /* the files of an interrupted workspace become a snapshot first */
  slip();
  atomic { if :: OURS(e) -> precious = false :: else -> goto reborn fi };
  slip();
  discard(); slip_answer();
  if :: !ok -> goto settling_resume :: true -> goto settling_resume /* no room */ :: ok fi;
  atomic {
    if
    :: OURS(e) -> if :: TREE_KEPT_FIRST -> unsaved = false :: else fi; step = BEGIN; sound()
    :: else -> goto reborn
    fi
  };
resuming:
  slip();
  atomic { /* a blocked one may have its instance still */
    if
    :: !OURS(e) -> goto reborn
    :: OURS(e) && precious && BLOCKED_IS_JUDGED -> goto settling_resume
    :: OURS(e) && !(precious && BLOCKED_IS_JUDGED)
    :: OURS(e) && !precious && PRESENT -> goto proving   /* it was left sealed */
    fi
  };
  discard(); slip_answer();
  if :: !ok -> goto settling_resume :: else fi;
restoring:
  slip();
  atomic { if :: stage[point] != COMPLETE || !intact[point] -> goto blocking :: else fi };
  atomic {
    taking == 0 ->
    if
    :: MAY(e) ->
         assert(nothing_lost || !unsaved);
         begin_instance();
         if
         :: genuine = true; in_memory = true; /* what was asked for */
              seal = held_seal[point]; work = held_work[point]; agent_epoch = held_seal[point];
              gate = (seal != 0 -> SEALED : OPEN); entered = true
         :: stage[OTHER_SLOT] == COMPLETE -> in_memory = true; /* another one */
              seal = held_seal[OTHER_SLOT]; agent_epoch = held_seal[OTHER_SLOT];
              gate = (seal != 0 -> SEALED : OPEN); entered = true
         :: seal = held_seal[point]; agent_epoch = seal; gate = SEALED; /* its files alone */
              entered = true
         :: entered = true                       /* nothing of it: a cold start */
         fi;
         mine = live; ok = true; sound()
    :: ok = false
    fi
  };
  slip_answer();
  if :: !ok -> goto settling_resume :: else fi;
  atomic { if :: OURS(e) -> recorded = mine; precious = false; sound() :: else -> goto reborn fi };
proving:
  slip();
  atomic {
    if
    :: REACHED(e) && gate == SEALED -> agent_epoch = e; ok = true;
         complete = (!HASH_COMPARED || seal == hash[point]) && (!MEMORY_ASKED || in_memory)
    :: REACHED(e) && gate != SEALED -> ok = true; complete = !HASH_COMPARED
    :: ok = false                                        /* no answer */
    fi
  };
  slip();
  if
  :: ok && complete
  :: ok && !complete && !precious ->                     /* contrary: it is not what was sealed */
       discard(); slip_answer();
       if
       :: ok && attempts == 0 -> attempts = 1; goto restoring
       :: else -> goto blocking
       fi
  :: !ok || (!complete && precious) -> goto blocking
  fi;
  atomic { if :: OURS(e) -> precious = true; next_run = e; sound() :: else -> goto reborn fi };
  slip();
  atomic {
    if
    :: REACHED(e) && ((gate == SEALED && seal == hash[point]) || !HASH_COMPARED) ->
         gate = OPEN; seal = 0; agent_epoch = e; token = e; ok = true; sound()
    :: else -> ok = false
    fi
  };
  slip_answer();
  if :: !ok -> goto settling_resume :: else fi;
resumed:
  atomic {
    if
    :: OURS(e) ->
         assert(back_to_the_recovery_point || live != mine || work >= promised);
         settle(RUNNING); sound()
    :: else
    fi;
    goto reborn
  };
blocking:
  slip();
  atomic { if :: OURS(e) -> settle(BLOCKED); sound() :: else fi; goto reborn };

settling_resume:
  slip();
  if
  :: OURS(e) && step == KEEP ->
       discard(); slip_answer();
       if :: !ok -> goto reborn :: else fi;
       atomic {
         if :: OURS(e) -> recorded = 0; settle(INTERRUPTED); sound() :: else fi;
         goto reborn
       }
  :: else
  fi;
  atomic {
    complete = false;
    if
    :: REACHED(e) && gate == OPEN ->
         if
         :: next_run != 0 && token == next_run -> agent_epoch = e; goto resumed
         :: !(next_run != 0 && token == next_run) && precious -> goto blocking
         :: !(next_run != 0 && token == next_run) && !precious
         fi
    :: REACHED(e) && gate != OPEN -> /* nobody worked in it */
         if :: TAKER_PROVES -> agent_epoch = e :: else fi
    :: PRESENT && agent_epoch > e -> goto reborn      /* refused: taken over */
    :: PRESENT -> if :: precious -> goto blocking :: else fi /* no answer */
    :: !PRESENT -> complete = precious && GONE_IS_ASKED /* it was opened, and worked in */
    fi
  };
  slip();
  discard(); slip_answer();
  if :: !ok -> goto reborn :: else fi;
  atomic {
    if
    :: OURS(e) && complete -> recorded = 0; settle(INTERRUPTED); sound()
    :: OURS(e) && !complete -> recorded = 0; precious = false; settle(SUSPENDED); sound()
    :: else
    fi;
    goto reborn
  };
done:
  skip
}

init {
  atomic {
    if
    :: BEGIN_RUNNING ->
         there = true; state = RUNNING; epoch = 1; born = 1; live = 1; recorded = 1; gate = OPEN;
         precious = true; agent_epoch = 1; genuine = true; unsaved = true
    :: else
    fi;
    run owner();
    if :: OWNERS > 1 -> run owner() :: else fi
  }
}

/* Not vacuous: each of these must be violated. */
ltl reach_suspended { [] !(IDLE && state == SUSPENDED && held_work[point] > 0) }
ltl reach_blocked { [] !(IDLE && state == BLOCKED) }
ltl reach_interrupted { [] !(IDLE && state == INTERRUPTED && work == 0 && point != 0) }
ltl reach_restored { [] !(IDLE && state == RUNNING && live == recorded && token != 0 && work > 1) }
ltl reach_deleted { [] !(!there && epoch >= 3) }
ltl reach_lie_refused { [] !(live != 0 && !genuine && gate == SEALED && state == RESUMING) }
