import ctypes, random, math
import numpy as np, ml_dtypes
from mpmath import mp, mpf, exp, log1p, log, fsum
mp.prec=900
L=ctypes.CDLL('/tmp/rr.so'); L.round_to.restype=ctypes.c_double
D=ctypes.c_double
TYPES=[np.float32,np.float16,ml_dtypes.bfloat16]
BITS=[(24,-149),(11,-24),(8,-133)]
MAX=[mpf(2)**128-mpf(2)**103, mpf(65520), mpf(2)**128-mpf(2)**119]
def round_mp(v,t):
    if v==0: return 0.0
    bits,least=BITS[t]
    s=-1 if v<0 else 1; a=abs(v)
    if a>=MAX[t]: return s*math.inf
    e=mp.frexp(a)[1]
    q=max(e-bits,least)
    k=a/mpf(2)**q
    f=mp.floor(k); r=k-f; f=int(f)
    if r>mpf(1)/2 or (r==mpf(1)/2 and f%2): f+=1
    return s*float(mpf(f)*mpf(2)**q)
random.seed(3)
# rounding of doubles
for t in range(3):
    for i in range(20000):
        v=random.choice([random.uniform(-2,2), 2.0**random.uniform(-160,20)*random.choice([-1,1]), float(TYPES[t](2.0**random.uniform(-20,10)))*(1+2.0**-BITS[t][0])])
        assert L.round_to(D(v),t)==round_mp(mpf(v),t), (v,t)
def rows():
    for i in range(400):
        n=random.choice([1,2,3,5,8,33])
        kind=random.randrange(7)
        spread=10**random.uniform(-4,2)
        off=random.choice([0,0,1,-3,100,1e4,-1e6,3e9,1e30])
        if kind==0: x=[off+random.gauss(0,spread) for _ in range(n)]
        elif kind==1: x=[off+random.randrange(-4,4) for _ in range(n)]
        elif kind==2: x=[off]*n
        elif kind==3: x=[off]+[off-random.uniform(20,100) for _ in range(n-1)]
        elif kind==4: x=[random.choice([0,-40,-80,-100,-104,1e-40,-1e-40,-3.5,-0.0625]) for _ in range(n)]
        elif kind==5: x=[off+2.0**random.uniform(-30,6)*random.choice([-1,1]) for _ in range(n)]
        else: x=[off+random.choice([0,1])*2.0**-10 - random.choice([0,30,60,200])for _ in range(n)]
        yield x
wrong=und=count=0
for x in rows():
    for tin in range(3):
        v=np.array(x).astype(TYPES[tin]).astype(np.float64)
        v=v[np.isfinite(v)]
        if not len(v): continue
        n=len(v); arr=(D*n)(*v)
        m=max(v); U=[mpf(a)-mpf(m) for a in v]; S=fsum(exp(u) for u in U)
        for tout in (tin,0,2):
            for op in range(3):
                y=(D*n)(); L.two_row(op,tout,arr,n,y)
                if op==2: want=[round_mp(mpf(m)+log(S),tout)]
                elif op==0: want=[round_mp(exp(u)/S,tout) for u in U]
                else: want=[round_mp(u-log(S),tout) for u in U]
                for g,w,u in zip(y,want,v):
                    count+=1
                    if g!=g: und+=1; print("undecided",op,tin,tout,list(v)[:6],u,w)
                    elif g!=w: wrong+=1; print("wrong",op,tin,tout,list(v)[:6],u,g,w)
                    if wrong+und>8: raise SystemExit
print(count,wrong,und)
