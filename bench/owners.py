#!/usr/bin/env python3
"""Creates a second by several owners, and a queueing model of them.

  owners.py load PLACE:PLACE... PROCESSES CALLS ROLE=PID,PID...   rate, and the CPU time of each role for one create, in microseconds
  owners.py idle SECONDS ROLE=PID,PID...                          what each role takes while nobody calls
  owners.py model FILE                                            what a model makes of the lines that `load` printed, behind OWNERS PROCESSES

The model is a closed network, solved by mean value analysis: a create visits two cores (all CPU time that it took, here on one machine)
and waits for the network and for a commit. An owner has one commit on its way, and what comes meanwhile shares the next one, so a create
waits for one and a half commits where several are made at once, and for one alone. CPU time is measured; network and commit are what is
left of a lone create. Nothing is fitted to the rows that it is compared with but the first two.
"""
import multiprocessing, os, sys, time

CORES = os.cpu_count()
TICK_US = 1e6 / os.sysconf("SC_CLK_TCK")


def cpu_us(pids):
    """Of each that is there."""
    used = {}
    for pid in pids:
        try:
            with open("/proc/%d/stat" % pid) as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except FileNotFoundError:
            continue
        used[pid] = (int(fields[11]) + int(fields[12])) * TICK_US
    return used


def since(before, pids):
    return sum(us - before[pid] for pid, us in cpu_us(pids).items() if pid in before)


def busy_us():
    with open("/proc/stat") as file:
        fields = [int(word) for word in file.readline().split()[1:]]
    # User, nice, system, interrupts.
    return (fields[0] + fields[1] + fields[2] + fields[5] + fields[6]) * TICK_US


def each(mine, calls, gate, took):
    os.makedirs(mine)
    gate.wait()
    begun = time.perf_counter()
    for call in range(calls):
        os.close(os.open(os.path.join(mine, str(call)), os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    took.put((begun, time.perf_counter()))


def load(places, processes, calls, roles):
    tops = [os.path.join(place, "load-%d" % time.time_ns()) for place in places]
    for top in tops:
        os.mkdir(top)
    gate, took = multiprocessing.Barrier(processes + 1), multiprocessing.Queue()
    workers = [
        multiprocessing.Process(target=each, args=(os.path.join(tops[n % len(tops)], str(n)), calls, gate, took))
        for n in range(processes)
    ]
    for worker in workers:
        worker.start()
    gate.wait()
    before, all_before = {role: cpu_us(pids) for role, pids in roles.items()}, busy_us()
    times = [took.get() for _ in workers]
    count = processes * calls
    used = {role: since(before[role], pids) / count for role, pids in roles.items()}
    used["all"] = (busy_us() - all_before) / count
    for worker in workers:
        worker.join()
    rate = count / (max(end for _, end in times) - min(begin for begin, _ in times))
    print("%.0f" % rate, *["%s=%.1f" % (role, us) for role, us in used.items()])


def rate_of(customers, stations, wait_us):
    """Mean value analysis: stations are (demand in us, servers); several servers are one fast queue and a delay (Seidmann)."""
    queues, delay = [0.0] * len(stations), wait_us + sum(d * (m - 1) / m for d, m in stations)
    rate = 0.0
    for number in range(1, customers + 1):
        answers = [d / m * (1 + queue) for (d, m), queue in zip(stations, queues)]
        rate = number / (delay + sum(answers))
        queues = [rate * answer for answer in answers]
    return rate * 1e6


def model(path):
    rows = {}
    for line in open(path):
        owners, processes, rate, *used = line.split()
        rows.setdefault((int(owners), int(processes)), []).append((float(rate), dict((k, float(v)) for k, v in (word.split("=") for word in used))))
    middle = lambda values: sorted(values)[len(values) // 2]
    rows = {key: (middle([r for r, _ in value]), {role: middle([u[role] for _, u in value]) for role in value[0][1]}) for key, value in rows.items()}
    alone, alone_used = rows[(1, 1)]
    # What is left of a lone create is the network and one commit.
    wait = 1e6 / alone - alone_used["all"]
    network = 200.0 * 2 if wait > 800 else wait / 3
    commit = wait - network
    print("a lone create: %.0f us, of them %.0f us of CPU time, %.0f us network, %.0f us for a commit" % (1e6 / alone, alone_used["all"], network, commit))
    for (owners, processes), (rate, used) in sorted(rows.items()):
        demand = used["all"]
        shared = 1.5 if processes > owners else 1.0
        told = rate_of(processes, [(demand, CORES)], network + commit * shared)
        roles = ", ".join("%s %.0f" % (role, us) for role, us in used.items())
        print("%d owners, %2d processes: %6.0f a second, model %6.0f (%.2f); us of CPU time each: %s" % (owners, processes, rate, told, told / rate, roles))
    _, used = rows[max(key for key in rows if key[0] == 1)]
    print("each on a machine of its own with %d cores, and clients enough (40 processes for each owner):" % CORES)
    for owners in (1, 2, 3, 10):
        told = rate_of(40 * owners, [(used["owners"] / owners, CORES)] * owners + [(used["engine"], CORES)], network + commit * 1.5 + used["clients"])
        print("  %2d owners: %6.0f a second" % (owners, told))
    print("  an owner's cores end at %.0f a second, the engine's at %.0f" % (CORES / used["owners"] * 1e6, CORES / used["engine"] * 1e6))


def idle(seconds, roles):
    before, all_before = {role: cpu_us(pids) for role, pids in roles.items()}, busy_us()
    time.sleep(seconds)
    used = {role: since(before[role], pids) / seconds / 1000 for role, pids in roles.items()}
    used["all"] = (busy_us() - all_before) / seconds / 1000
    print("idle, ms of CPU time a second:", *["%s=%.1f" % (role, ms) for role, ms in used.items()])


if sys.argv[1] == "idle":
    idle(float(sys.argv[2]), {role: [int(pid) for pid in pids.split(",") if pid] for role, pids in (word.split("=") for word in sys.argv[3:])})
elif sys.argv[1] == "load":
    roles = dict(word.split("=") for word in sys.argv[5:])
    roles = {role: [int(pid) for pid in pids.split(",") if pid] for role, pids in roles.items()}
    load(sys.argv[2].split(":"), int(sys.argv[3]), int(sys.argv[4]), roles)
else:
    model(sys.argv[2])
